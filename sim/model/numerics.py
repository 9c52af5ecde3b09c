"""What changes a model's numbers but neither the time nor the memory of its steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Gt

from sim.config.units import Share

Positive = Annotated[float, Gt(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Constants that a framework is told, by the names of `transformers`; None where they are not
    known, so that its own default would hold.

    `rope_theta` is the base of rotary positions, which turn the share `rotary_share` of a head;
    `rope_llama3` the factor by which Llama 3.1 stretches them, `rope_scaling` any other way.
    """

    rope_theta: Positive | None = None
    rotary_share: Share | None = None
    rope_llama3: Positive | None = None
    rope_scaling: Mapping[str, Any] = field(default_factory=dict, hash=False)
    norm_epsilon: Positive | None = None
