"""The user's source text, read and never run."""
