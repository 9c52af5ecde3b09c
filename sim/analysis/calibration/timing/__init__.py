"""How long do kernels, copies, launches and collectives take on this machine?

Each is called as users call it in torch, and repeated until its median is known. The folder goes
with `fitting`, which alone reads its tables.
"""
