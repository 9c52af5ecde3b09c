"""Which job and which machine does a scenario name?

A scenario names files and changes of their values; a setup holds the loaded and checked objects.
This folder cannot be deleted.
"""
