"""Which constants of a device or a library explain measured times?

Rates are fitted to a physical model, and a Gaussian process learns the rest. The folder can be
deleted when vendors publish profiles.
"""
