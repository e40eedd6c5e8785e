"""Models and losses of well-known packages, two training steps each on simulated devices."""
