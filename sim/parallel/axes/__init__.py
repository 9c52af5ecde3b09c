"""Axes of the mesh, one file each: a module whose `AXIS` says what the ranks along it divide."""
