"""How long does one collective take by itself?

The answer is a table by size, algorithm and protocol, from the library's own cost model. The folder
can be deleted when nobody compares with nccl-tests.
"""
