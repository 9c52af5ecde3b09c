"""How is a user's file found, read, checked, and a mistake told?

Files become frozen dataclasses; a mistake is one line with where, what and what to do. It goes when
a library tells mistakes as well.
"""
