"""How long does a kernel take on a device?

Products take tiles in waves, other kernels run at rates; a measured profile replaces both. This
folder can be deleted when every device has a profile of every shape.
"""
