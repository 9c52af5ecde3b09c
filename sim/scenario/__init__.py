"""Which job and which machine does a scenario name?

A scenario names files and what it changes of them; a setup has them resolved and checked. It never
goes.
"""
