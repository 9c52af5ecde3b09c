"""How fast gossip mixes: the second eigenvalue of its weights, which theory gives for a ring."""

import numpy as np
from numpy.typing import NDArray

from sim.jobs.sharing.graphs import Neighbours, mixing

Matrix = NDArray[np.float64]


def metropolis(neighbours: Neighbours) -> Matrix:
    """The mixing weights of all workers as a matrix."""
    weights = np.zeros((len(neighbours), len(neighbours)))
    for i, row in enumerate(mixing(neighbours)):
        weights[i, list(row)] = list(row.values())
    return weights


def second_eigenvalue(weights: Matrix) -> float:
    """The second largest modulus of a mixing matrix's eigenvalues: consensus shrinks by it."""
    sizes = np.sort(np.abs(np.linalg.eigvals(weights)))
    return float(sizes[-2]) if len(sizes) > 1 else 0.0
