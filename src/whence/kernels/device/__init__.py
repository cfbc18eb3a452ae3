"""Programs for devices with many small workers, which divide work otherwise than a CPU."""
