"""The dashboard: models × nights, down to one operator of one night."""
