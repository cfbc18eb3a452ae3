"""Whose time it was: measured kernel times on the operators of the user's file."""

from whence.attribution.measure import profile_executable
from whence.attribution.profile import Profile

__all__ = ["Profile", "profile_executable"]
