"""What do the ranks along an axis divide?

A module's `AXES` are found without being registered. This folder goes with `parallel`.
"""
