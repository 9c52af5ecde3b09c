"""Where does a script say that a step has ended?"""

from collections.abc import Callable

hooks: list[Callable[[], None]] = []  # the running capture sets a hook here


def step() -> None:
    """Mark the end of a step in a training script. `sim capture` then records from mark to mark
    instead of between the ends of optimizer steps. Does nothing outside of a capture.

    >>> step()
    """
    for hook in hooks:
        hook()
