"""What runs scripts and trainers: the command line, `preflight`, ranks."""
