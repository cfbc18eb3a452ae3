"""Making programs: memory layout, packed weights, plans, cached models, tuning records, export."""
