"""Timing kernels, copies, launches and collectives on this machine."""
