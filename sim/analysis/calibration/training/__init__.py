"""How long does a job's training step really take on this machine?

A described job becomes a script of plain torch, and any script is measured in the same way. The
folder can be deleted when nobody has hardware to compare with.
"""
