"""What is the answer of a simulation?

An answer has fields, derived values, and the inputs that it is for. It cannot be deleted.
"""
