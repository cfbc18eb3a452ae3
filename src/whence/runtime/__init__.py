"""Running compiled models: engines, streams, profiling, executables."""
