"""What do the ranks along an axis divide?

A module's `AXES` are found without being registered. Delete this folder with `parallel`.
"""
