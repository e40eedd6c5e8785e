"""Renderers: a report in, text out. They know the records and nothing else."""
