"""Which constants of a device or a library explain measured times?

Rates are fitted to a physical model, and a Gaussian process learns the rest. It goes when profiles
come ready-made.
"""
