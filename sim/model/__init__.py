"""Models as work: what a device runs and keeps for each layer."""
