"""A contiguous piece of the model, on one stage."""

from dataclasses import dataclass

from sim.model.block import ALONE, Again
from sim.model.kinds import is_layer


@dataclass(frozen=True, slots=True)
class Chunk:
    """A contiguous piece of the model: the kinds of its blocks in order, and how each takes part in
    recomputation where not all do alike."""

    kinds: tuple[str, ...]
    again: tuple[Again, ...] = ()

    @property
    def layers(self) -> int:
        return sum(is_layer(kind) for kind in self.kinds)

    @property
    def slots(self) -> tuple[tuple[str, Again], ...]:
        """Kind and part in recomputation of each block."""
        return tuple(zip(self.kinds, self.again or (ALONE,) * len(self.kinds), strict=True))
