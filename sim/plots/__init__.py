"""Everything that draws, and the only importer of matplotlib."""

SUFFIXES = (".png", ".svg")
