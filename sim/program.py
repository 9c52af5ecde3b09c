"""The waist: what each rank does, on which stream, after what.

Strategies in `sim.parallel` write a `Program` and know no clock; `sim.engine` plays one and knows
no transformer. A program is SPMD: all ranks of one pipeline stage run the same operations, and a
communication names a mesh axis or a peer stage instead of ranks. `sim.engine.fold` finds out
which ranks cannot be told apart and simulates each such role once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective among the ranks that differ from this one in `axes` only.

    `bytes` is the size of the whole tensor as nccl-tests counts it: the all-reduced buffer, the
    gathered result, the tensor before reduce-scatter. `stages` restricts a group along `pp` (the
    tied embedding lives on the first and the last stage). `cause` is its line in the breakdown.
    """

    kind: Kind
    axes: tuple[str, ...]
    bytes: float
    name: str
    cause: str
    stages: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """`bytes` to the rank of stage `to` at the same place in every other axis."""

    to: int
    bytes: float
    key: str
    cause: str = "pipeline communication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """The other end of the `Send` with the same key."""

    source: int
    bytes: float
    key: str
    cause: str = "pipeline communication"


Call = Collective | Send | Receive


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Kernels that run back to back on the device, between two communications.

    `device` is their time on the device (s), `host` the time the host takes to launch them, and
    `lead` the time from the host's first launch to the last kernel's end when the device is idle:
    max over i of (launches up to i) + (kernels from i on). With the device ready at r and the
    host free at h, the segment ends at max(r + device, h + lead) and frees the host at h + host.
    The collectives in `beside` start with it, and what follows waits for them too.
    """

    name: str
    cause: str
    device: float
    host: float = 0.0
    lead: float = 0.0
    beside: tuple[Collective, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One pass of one microbatch through one chunk: segments and the collectives between them."""

    name: str
    items: tuple[Segment | Collective, ...]

    def collectives(self) -> Iterator[Collective]:
        """All of them, in order, those beside segments included."""
        for item in self.items:
            if isinstance(item, Collective):
                yield item
            else:
                yield from item.beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Run `work` on the compute stream once all operations named in `after` are done.

    `sync` makes the host wait for the device at its end (a loss that is printed, an overflow
    check). `chunk`, `microbatch` and `phase` say which pass it is, for the picture.
    """

    name: str
    work: Work
    after: tuple[str, ...] = ()
    stream: str = "compute"
    sync: bool = False
    phase: str = ""
    chunk: int = 0
    microbatch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicate:
    """Take part in all of `calls` at once; done when the last of them is.

    A transfer starts when every participant has reached it. On the compute stream it blocks the
    passes behind it; on a stream of its own it overlaps them. `sync` makes the host wait for its
    end too (`torch.cuda.synchronize`), so that nothing behind it is launched ahead.
    """

    name: str
    calls: tuple[Call, ...]
    after: tuple[str, ...] = ()
    stream: str = "compute"
    sync: bool = False


Operation = Compute | Communicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What every rank of each stage does; `mesh` gives the axis sizes, fastest varying first.

    Operations on one stream run in order; `after` names operations of the same stage on other
    streams. Names are unique within a stage.
    """

    mesh: Mapping[str, int]
    stages: tuple[tuple[Operation, ...], ...]
    notes: tuple[str, ...] = field(default=())
