"""Many steps with stragglers, every rank at a speed of its own."""
