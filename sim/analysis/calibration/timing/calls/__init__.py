"""The torch call of each kernel and collective that a calibration times.

A call takes one of several sets of random inputs, so that operands come from memory as they do in
training, and leaves its results to the allocator. torch is imported when a call is built.
"""
