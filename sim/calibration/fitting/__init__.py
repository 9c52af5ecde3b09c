"""Fitting constants of devices and libraries to what was timed."""
