"""How long do kernels, copies, launches and collectives take on this machine?

Every call is made as users make it in torch, and repeated until its median is known. Only `fitting`
reads the tables of this folder, and the two folders can be deleted together.
"""
