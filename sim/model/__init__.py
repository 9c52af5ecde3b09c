"""Which kernels does a model run, and what does it keep?

A model is a row of blocks; a block lists operators, which have kernels forward and for both
gradients. It goes when every model is captured from its script.
"""
