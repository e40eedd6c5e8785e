"""Paired timings: ratios of medians of interleaved runs, never a pass or a fail."""
