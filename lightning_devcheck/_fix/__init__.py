"""Fixes that are tried: edited sources in memory, what a second run has shown, what is written."""
