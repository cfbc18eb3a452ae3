"""Nested graphs: branches inlined, flattened, or left to fail only where they run."""
