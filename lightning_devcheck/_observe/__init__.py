"""Live objects, read without running them."""
