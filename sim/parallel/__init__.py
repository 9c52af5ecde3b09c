"""How does a plan become a program?

Ranks are digits of a mesh; passes of a schedule are routines with what surrounds the blocks. It
goes when every job is captured from its script.
"""
