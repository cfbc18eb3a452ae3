"""The OpenCL engine: devices, programs for them, and runs on queues."""
