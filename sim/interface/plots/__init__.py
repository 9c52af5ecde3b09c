"""How is an answer drawn?

One module for each picture, and the only importer of matplotlib. A module goes when its answer
does.
"""

import logging

# Where a cache can be written is no news to whoever asked for a picture.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

SUFFIXES = (".png", ".svg", ".pdf")
