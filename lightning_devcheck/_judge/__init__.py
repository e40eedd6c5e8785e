"""Records and culprits become findings."""
