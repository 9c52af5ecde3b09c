"""A folded program as a (max, +) graph of durations: how long do thousands of columns take?

The graph holds what waits for what. A column is one value for each duration, so that samples and
sensitivities evaluate thousands of steps in a few operations on arrays.
"""
