"""When every step of one stream ran, in arrays: what a record consists of."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

COMMUNICATION = -1  # the row of a step that is no computation


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One stream of a role, step by step.

    `start` and `end` are when a step was ready and when it ended [steps]; `parts` the row of a
    computation's seconds by cause, `COMMUNICATION` for others. The transfers that a communication
    took part in are columns: `transfers` are their rows in the record's table (-1: none),
    `begun` and `arrived` when they began and ended [steps, most].
    """

    role: int
    stream: str
    start: Floats
    end: Floats
    parts: Indices
    transfers: Indices
    begun: Floats
    arrived: Floats
