"""Which words does a user type?

A command is a function of a file; it calls what Python calls, and prints the answer. It goes when
everybody uses Python.
"""
