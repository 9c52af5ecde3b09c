"""How is a user's file found, read and checked, and how are mistakes reported?

Files become frozen dataclasses. A mistake becomes one line with its place, fault and remedy. This
folder can be deleted when a library reports mistakes just as clearly.
"""
