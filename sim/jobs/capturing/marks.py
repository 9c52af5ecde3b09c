"""Where does a script say that a step has ended?"""

from collections.abc import Callable

hooks: list[Callable[[], None]] = []  # of the capture at work


def step() -> None:
    """Say in a training script that a step ends here: `sim capture` records from one such place to
    another, in place of ends of optimizer steps. Does nothing outside of a capture.

    >>> step()
    """
    for hook in hooks:
        hook()
