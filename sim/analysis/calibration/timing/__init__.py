"""How long do kernels, copies, launches and collectives take on this machine?

Each is called as people call it in torch, in repetitions until its median is known. It goes with
`fitting`, which alone reads its tables.
"""
