"""The software of a server: its kernels, its scheduler, its host; files in `topologies/engines`."""

from collections.abc import Mapping
from typing import Annotated, Any

from sim.config import catalog
from sim.config.checked import Named
from sim.config.dataclass import dataclass
from sim.config.units import Bytes, Ge, Le, Seconds, Share
from sim.hardware.stack import Stack

Count = Annotated[int, Ge(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(metaclass=Named):
    """The content of `topologies/engines/NAME.toml`.

    `stack` has the kernels that the engine fuses and the host's seconds of a launch. Memory: the
    engine takes a share `memory` of a GPU for weights, `workspace` and cache; the cache consists of
    blocks of `block` tokens. Scheduler: a step has at most `sequences` sequences and `budget`
    tokens. Each sequence that decodes takes one token, chunks of prompts take the rest. A new
    sequence is admitted while the cache has room for its prompt. The engine also reserves room for
    the share `reserved` of each sequence's longest possible answer, at most `estimate` tokens. If
    the engine `reuses` blocks, a sequence that lost its cache finds its blocks again unless other
    sequences took them.

    Host: `step` seconds of each step and `sequence` seconds of each sequence in it (scheduling,
    inputs, detokenisation). These come on top of the device's seconds, unless the engine `overlaps`
    them with the step before. Steps with at most `graphs` tokens are one CUDA graph; the host
    launches the kernels of larger steps one by one. All-reduces of at most `direct` bytes within a
    node run the engine's own kernels if these are faster.
    """

    name: str
    stack: Stack
    memory: Share = 0.9
    workspace: Bytes = 2.0 * 2**30
    block: Count = 16
    budget: Count = 8192
    sequences: Count = 256
    reserved: Annotated[float, Ge(0), Le(1)] = 0.0
    estimate: Count = 1 << 30
    reuses: bool = True
    step: Seconds = 0.0
    sequence: Seconds = 0.0
    overlaps: bool = False
    graphs: Annotated[int, Ge(0)] = 512
    direct: Bytes = 0.0


def load(
    name: str, tuning: Mapping[str, Any] | None = None, *, where: str = "command line"
) -> Engine:
    """Load an engine by its name in `topologies/engines`, or from a path; `tuning` alters values of
    the file. Raises `InputError`."""
    path = catalog.find("topologies/engines", name, where=where)
    document = catalog.overlaid(catalog.document("topologies/engines", path), tuning or {})
    return catalog.validate(document, Engine, catalog.place(path, changed=bool(tuning)))
