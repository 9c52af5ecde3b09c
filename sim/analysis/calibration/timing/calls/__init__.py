"""The torch call of each kernel and collective that a calibration times.

Inputs are random. Calls with separate inputs are timed in turn, so operands come from memory as in
training. torch's allocator provides memory for results. torch is imported when a call is built.
"""
