"""Where tensors come from, written down while the user's code runs."""
