"""How is a user's file found, read and checked, and how are mistakes reported?

Files become frozen dataclasses; a mistake is one line with where, what and what to do. This folder
can be deleted when a library reports mistakes as well.
"""
