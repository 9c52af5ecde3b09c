"""A program: what every rank of each pipeline stage does in one training step.

It is SPMD: all ranks of a stage run the same operations. What a pass does is written once for all
microbatches (`PassOps`); the schedule says in which order passes run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sim.program.exchange import Exchange
from sim.program.schedule import Schedule
from sim.program.stage import Stage


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """One step; `mesh` gives the axis sizes, fastest varying first.

    Operations on one stream run in order; `after` names operations of the same stage. Names are
    unique within a stage. Where stages end a step `apart`, none waits for another and the next step
    begins on each as soon as it is done: a step then takes as long as on the stage that takes
    longest from its first pass on, and what a stage waits before that overlaps the step before.
    """

    mesh: Mapping[str, int]
    schedule: Schedule
    stages: tuple[Stage, ...]
    exchange: Exchange = field(default_factory=Exchange)
    apart: bool = False

    def __post_init__(self) -> None:
        for stage, (stage_program, actions) in enumerate(
            zip(self.stages, self.schedule.actions, strict=True)
        ):
            if tuple(stage_program.ops_by_variant) != actions.variants:
                raise ValueError(f"stage {stage} needs operations for each variant, in their order")

    @property
    def base(self) -> "Program | None":
        """The same with fewer steps, where it has several that do not end before the next begin."""
        base = self.schedule.base
        return None if base is None else replace(self, schedule=base)

    @property
    def ends(self) -> bool:
        """Whether a step has an end at which the next one begins."""
        return not self.apart and self.schedule.base is None

    def neighbours(self) -> Iterator[tuple[int, int]]:
        """Every pair of stages (from, to) between which messages pass, both ways."""
        pairs = dict.fromkeys(
            (here, there) for (here, _), (there, _) in self.schedule.borders() if here != there
        )
        yield from pairs
        yield from ((there, here) for here, there in pairs if (there, here) not in pairs)
