"""How does a plan become a program?

Ranks are points of a mesh. A schedule orders passes, and passes consist of operations. This folder
can be deleted when every job is captured from its script.
"""
