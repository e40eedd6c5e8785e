"""How reliably all processes of a run stop together: ``python -m tests.ranks``."""
