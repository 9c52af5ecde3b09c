"""How does a plan become a program?

Ranks are digits of a mesh; passes of a schedule are operations: the blocks and their
surroundings. This folder goes when every job is captured from its script.
"""
