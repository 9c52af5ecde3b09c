"""How do training frameworks write a job?

A table between their words and our keys, read in both directions; unknown words are named. A file
goes with its framework.
"""
