"""Which files of other programs are read and written?

Each format has a file here, which knows the format but no question of `sim`. A file can be deleted
when no program uses its format.
"""
