"""Which of some jobs is best, and why?

The seconds of each cause are subtracted; differences that matter are told. It goes when sweeps
explain their rows.
"""
