"""Which files can `sim run` write? Each has a module with the name of its option.

A module has `HELP` (the option's help text), `SUFFIXES` (the allowed endings of its file; empty for
a folder) and `write(result, path)`. A module that can also write many sampled steps has
`write_samples(samples, path)`.
"""
