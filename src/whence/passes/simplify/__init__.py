"""Removing and merging: dead nodes, no-ops, neutral arithmetic, duplicates, slices."""
