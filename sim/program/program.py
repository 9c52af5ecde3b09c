"""A program: what every rank of each pipeline stage does in one training step.

It is SPMD: all ranks of a stage run the same operations. What a pass does is written once for all
microbatches (`PassOps`); the schedule says in which order passes run.

An `Exchange` is how neighbouring stages hand over activations and their gradients.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Literal

from sim.config.dataclass import dataclass
from sim.program.schedule import Schedule
from sim.program.stage import Stage

Style = Literal["batched", "async-send", "overlapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How neighbouring stages hand over activations and their gradients: `bytes` each, or, where
    they differ, those behind each piece of the model.

    `batched`: after every pass one blocking exchange sends its output and receives the next pass's
    input (Megatron-LM's send_forward_recv_backward and its kin, batch_isend_irecv). `async-send`:
    the send runs on a stream of its own, the receive blocks the compute stream when its data is
    needed. `overlapped`: both run on streams of their own (Megatron-Core's
    overlap_p2p_communication). `sync` makes the host wait for what blocks the compute stream.
    `among` are the ranks of the communicator that carries a message: torch makes one for the two of
    a single isend or irecv, and takes the group's own for batch_isend_irecv (ProcessGroupNCCL.cpp,
    `pointToPoint`).
    """

    style: Style = "batched"
    bytes: float | tuple[float, ...] = 0.0
    sync: bool = False
    among: int = 2

    def between(self, one: int, other: int) -> float:
        """Bytes that pass between two neighbouring pieces, either way."""
        return self.bytes[min(one, other)] if isinstance(self.bytes, tuple) else self.bytes


def message_stream(what: str, way: str, stage: int, peer: int, stages: int) -> str:
    """The stream on which a stage sends or receives forward (F) or backward (B): messages between
    two stages stay in order and do not block others.

    >>> message_stream("send", "F", 0, 1, 4), message_stream("send", "F", 2, 1, 4)
    ('send F', 'send F 1')
    """
    usual = stage + (1 if (what == "send") == (way == "F") else -1)
    return f"{what} {way}" + ("" if peer == usual % stages else f" {peer}")


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
