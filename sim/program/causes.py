"""Causes: the kinds of work and waiting on which a step's seconds are spent.

A cause is a line of the breakdown and a colour of the pictures. It is a string, its name, so
results can print it unchanged. Only this file knows its class and its colour.
"""

from typing import Literal, Self

Class = Literal["compute", "communication", "waiting"]

GREY = "#999999"


class Cause(str):
    """A name with a class and a colour. Seconds of a cause that is `outside_pipeline` are left out
    of the total of which the bubble is a share.

    >>> DATA, DATA.kind, DATA == "data communication"
    ('data communication', 'communication', True)
    """

    kind: Class
    colour: str
    outside_pipeline: bool

    def __new__(
        cls,
        name: str,
        kind: Class = "compute",
        colour: str = GREY,
        *,
        outside_pipeline: bool = False,
    ) -> Self:
        cause = super().__new__(cls, name)
        cause.kind, cause.colour, cause.outside_pipeline = kind, colour, outside_pipeline
        return cause


# Colours are Okabe and Ito's, which colour-blind readers can tell apart, and shades of them.
COMPUTE = Cause("compute")
RECOMPUTE = Cause("recompute")
COMPRESSION = Cause("compression")
DECODING = Cause("decoding", "compute", "#44aa99", outside_pipeline=True)
OPTIMIZER = Cause("optimizer", "compute", "#009e73", outside_pipeline=True)

TENSOR = Cause("tensor communication", "communication", "#f0e442")
CONTEXT = Cause("context communication", "communication", "#b8a81a")
EXPERT = Cause("expert communication", "communication", "#d55e00")
PIPELINE = Cause("pipeline communication", "communication", "#404040")
DATA = Cause("data communication", "communication", "#cc79a7", outside_pipeline=True)
OFFLOAD = Cause("offload", "communication", "#56b4e9")
LOADING = Cause("data loading", "communication", "#332288", outside_pipeline=True)
CHECKPOINT = Cause("checkpoints", "communication", "#661100", outside_pipeline=True)
EMBEDDING = Cause("embedding communication", "communication", "#8c3373", outside_pipeline=True)

BUBBLE = Cause("bubble", "waiting")
HOST = Cause("host", "waiting")
IMBALANCE = Cause("expert imbalance", "waiting", "#e69f00", outside_pipeline=True)
STRAGGLERS = Cause("stragglers", "waiting", outside_pipeline=True)
WAITING = Cause("waiting", "waiting", outside_pipeline=True)

# Causes of workers that share updates.
COMMUNICATION = Cause("communication", "communication")
INSIDE = Cause("inside workers", "communication", "#f0e442")
NEIGHBOURS = Cause("with neighbours", "communication", "#cc79a7")
PUSH = Cause("push", "communication", "#56b4e9")
PULL = Cause("pull", "communication", "#cc79a7")
SERVER = Cause("server", "waiting")
DOWN = Cause("down", "waiting")
