"""Fitting the constants of devices and collective libraries to measurements."""
