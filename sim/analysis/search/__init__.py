"""Which layout is the fastest that fits?

Layouts are bounded before they are written, and written before they are played. It goes when
frameworks choose layouts themselves.
"""
