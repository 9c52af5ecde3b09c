"""A folded program as a (max, +) graph of durations: how long do thousands of columns take?

The graph says which moment waits for which other moments. A column has one value for each duration.
So samples and sensitivities evaluate thousands of steps in a few operations on arrays.
"""
