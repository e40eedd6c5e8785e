"""Operators where there are no values."""
