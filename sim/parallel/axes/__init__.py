"""What do the ranks along an axis divide?

One file for each axis of the mesh. It goes with `parallel`.
"""
