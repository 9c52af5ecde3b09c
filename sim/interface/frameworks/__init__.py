"""How do training frameworks write a job?

Each framework has a table between its arguments and our keys, which is read in both directions.
Unknown arguments are reported. A file can be deleted when its framework is no longer used.
"""
