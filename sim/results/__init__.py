"""What is the answer of a simulation?

An answer has fields, derived values, and its inputs. This folder cannot be deleted.
"""
