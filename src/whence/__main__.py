"""`python -m whence`, where the command is not on the path."""

from __future__ import annotations

from whence.cli.main import main

if __name__ == "__main__":
    main()
