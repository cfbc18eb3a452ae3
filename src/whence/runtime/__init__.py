"""Running programs: engines, instances, streams, profiling, executables."""
