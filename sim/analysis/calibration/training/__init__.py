"""How long does the training step of a job really take here?

A described job becomes a script of plain torch, and any script is measured in the same way. It goes
when nobody has hardware to compare with.
"""
