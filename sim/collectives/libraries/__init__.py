"""Collective libraries: which algorithm runs for a call, and what it costs."""
