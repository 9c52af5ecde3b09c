"""Everything that draws, and the only importer of matplotlib."""

import logging

# Where a cache can be written is no news to whoever asked for a picture.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

SUFFIXES = (".png", ".svg")
