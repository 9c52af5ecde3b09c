"""Which operators does a kind of block have?

Each kind is a file, which is found without being registered. This folder goes with `model`.
"""
