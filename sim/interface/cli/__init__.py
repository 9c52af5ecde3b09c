"""Which words does a user type?

A command is a function of a file; it calls what Python calls, and prints the answer. Options that
are called as Python's arguments are handed on as they are. It goes when everybody uses Python.
"""
