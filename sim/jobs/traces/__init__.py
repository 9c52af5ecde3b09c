"""Traces of real steps, read, played again, and played with something changed."""
