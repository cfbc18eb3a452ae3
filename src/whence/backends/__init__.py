"""What models run on: each folder is a backend (`building/backend.py` says what that is)."""
