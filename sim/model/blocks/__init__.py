"""Which operators does a kind of block have?

One file for each kind, found without being registered. It goes with `model`.
"""
