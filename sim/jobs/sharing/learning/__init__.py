"""Small tasks that learn for real, driven by the order that a simulation finds."""
