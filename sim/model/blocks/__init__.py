"""Which operators does a kind of block have?

Each kind is a file, found without being registered. This folder can be deleted with `model`.
"""
