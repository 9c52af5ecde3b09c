"""The files that `sim run` can write: a module named like its option for each of them.

A module states `HELP` (what it writes), `SUFFIXES` (how its file may end; a folder has none) and
`write(result, path)`; what can show many sampled steps too has `write_samples(samples, path)`.
"""
