"""Which rounds does an algorithm of a collective have?

Each algorithm is a file, found without being registered. Delete this folder with `collectives`.
"""
