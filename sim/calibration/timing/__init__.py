"""Timing kernels, copies and collectives on this machine."""
