"""Which words does a user type?

A command is a function in a file of its own. It calls the same function that a Python user calls,
and prints the answer. Options with the name of a Python argument are passed on unchanged. The
folder can be deleted when everybody uses Python.
"""
