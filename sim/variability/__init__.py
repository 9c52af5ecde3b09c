"""What is not always equally fast, by which law?

Laws of slowdown draw from generators of their own, so that a seed gives the same draws. It goes
when ranks do not vary.
"""
