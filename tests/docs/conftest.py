"""The command line, for pages that show commands."""

from tests.cli.conftest import whence

__all__ = ["whence"]
