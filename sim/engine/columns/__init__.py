"""How long does a step take for thousands of sets of durations?

The program is a (max, +) graph: each moment waits for other moments. A set of durations is a column
of an array. So samples and sensitivities evaluate thousands of steps in a few operations on arrays.
"""
