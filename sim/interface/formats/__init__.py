"""Which files of others are read and written?

One file for each format; it knows the format and no question. A file goes when nobody writes its
format.
"""
