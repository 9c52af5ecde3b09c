"""Places of two pieces of a model on each stage."""

from sim.program.schedule import Places


def in_a_v(stages: int) -> Places:
    """Return places of pieces with two chunks per stage. The second chunks run from the last stage
    back to the first, which thus also holds the head.

    Source: Qi et al. 2024, arXiv 2405.15362, figure 3.

    >>> in_a_v(3)
    ((0, 5), (1, 4), (2, 3))
    """
    return tuple((s, 2 * stages - 1 - s) for s in range(stages))


def both_ways(stages: int) -> Places:
    """Return places of pieces with two chunks per stage, one for each direction of the pipeline.
    Two stages hold each piece.

    Source: DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1.

    >>> both_ways(4)
    ((0, 3), (1, 2), (1, 2), (0, 3))
    """
    ends = ((s, stages - 1 - s) for s in range(stages))
    return tuple((min(pair), max(pair)) for pair in ends)
