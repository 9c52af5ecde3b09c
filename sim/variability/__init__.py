"""Which ranks are slow, and by which law?

Each law of slowdown draws from a generator of its own, so a seed always gives the same draws. This
folder can be deleted if all ranks are equally fast at all times.
"""
