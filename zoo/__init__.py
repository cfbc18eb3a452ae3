"""Real models that others made: where they come from, how to fetch them, and what to feed them."""
