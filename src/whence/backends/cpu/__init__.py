"""The processor: kernels in C, compiled and run by threads of a pool."""
