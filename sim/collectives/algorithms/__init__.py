"""Which rounds does an algorithm of a collective have?

One file for each algorithm, found without being registered. It goes with `collectives`.
"""
