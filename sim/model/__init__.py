"""Which kernels does a model run, and what does it keep?

A model is a row of blocks. A block lists operators, with kernels for the forward pass and for both
gradients. This folder can be deleted when every model is captured from its script.
"""
