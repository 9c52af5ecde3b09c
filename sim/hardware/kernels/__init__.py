"""How long does a kernel take on a device?

Products run as waves of tiles, other kernels at rates; a measured profile replaces both. This
folder can be deleted when every device has a profile of every shape.
"""
