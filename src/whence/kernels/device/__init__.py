"""Programs for devices with many small workers, where the division of the work is another than on a
CPU.
"""
