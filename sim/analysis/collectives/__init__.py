"""How long does one collective take by itself?

A table by size, algorithm and protocol, from the library's own cost model. It goes when nobody
compares with nccl-tests.
"""
