"""How is an answer drawn?

Each picture has a module, and only this folder imports matplotlib. A module can be deleted with its
answer.
"""

import logging

# Users who asked for a picture need no messages about matplotlib's cache.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

SUFFIXES = (".png", ".svg", ".pdf")
