"""Everything that draws; the only importer of matplotlib."""
