"""Many profiles: a matrix of models, engines and settings, measured cell by cell into one table of
Parquet files, and questions to that table.
"""
