"""Which algorithm does a library take, and what does a call cost?

A library chooses as its own source code does; its constants are fitted to published tables. This
folder can be deleted when libraries predict their own times.
"""
