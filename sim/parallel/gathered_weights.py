"""The collectives that bring a rank the weights that other ranks hold or have updated (ZeRO)."""

from collections.abc import Iterator

from sim.parallel.data import Parameters, together
from sim.parallel.job import Job
from sim.parallel.state import near_axes, state_axes
from sim.program.causes import DATA
from sim.program.operations import (
    Collective,
)


def weights_gathered(
    job: Job, parameters: Parameters, *, near: bool = False
) -> tuple[Collective, ...]:
    """Return the collectives that bring a rank the shares of these parameters that other ranks hold
    or have updated. With `near`, they come from the rank's own group, which holds all shares."""
    return job.known.memo(
        ("gathers", job.key, near, *parameters.items()),
        lambda: tuple(_gathers(job, parameters, near)),
    )


def _gathers(job: Job, parameters: Parameters, near: bool) -> Iterator[Collective]:
    plan = job.plan
    changed = {g: count for g, count in parameters.items() if g.trained or plan.zero >= 3}
    for group, size in together(changed, job.gathered_bytes).items():
        axes = near_axes(plan, group) if near else state_axes(plan, group)
        if axes:
            in_turn = job.stack.zero_gather == "broadcast" and plan.zero < 3
            yield Collective(
                kind="broadcast" if in_turn else "all_gather",
                axes=axes,
                bytes=size,
                name=f"{group.name} weights",
                cause=DATA,
                times=plan.degree(axes) if in_turn else 1,
            )
