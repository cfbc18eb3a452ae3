"""The programs that run other engines, each in a process that loads that engine and little else."""
