"""Which layout is the fastest that fits?

A layout's step time is bounded before its program is written, and its program is written before it
is played. The folder can be deleted when frameworks choose layouts themselves.
"""
