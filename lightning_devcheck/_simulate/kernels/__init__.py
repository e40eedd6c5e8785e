"""Operators that CUDA runs by other means than the CPU."""
