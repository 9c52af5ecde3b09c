"""Fitting the constants of devices and libraries to measurements."""
