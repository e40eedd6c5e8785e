"""Which devices an operator takes, and how it runs."""
