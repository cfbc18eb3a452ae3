"""What changed between opsets, one family of operators to a file."""
