"""Which operators does a kind of block have?

Each kind is a file, which needs no registration. This folder can be deleted with `model`.
"""
