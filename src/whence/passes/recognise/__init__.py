"""Patterns that exporters write out in small operators, recognised as the one operator they are."""
