"""How exact single precision is held to be."""

LOST = 1e-6  # of a deviation from the reference column, at most
