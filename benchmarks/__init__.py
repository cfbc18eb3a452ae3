"""Programs that measure whence beside its peers, in one interleaved run, and print ratios."""
