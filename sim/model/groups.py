"""Parameter groups: parameters that are split and replicated over the same axes of the mesh."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters whose gradients are summed over the same ranks.

    `split_by` names the axes that divide the batch or the sequence but hold different parameters
    of this group (experts over `ep`); over all other such axes the parameters are replicated, their
    gradients summed, and their states sharded by ZeRO (`sim.parallel.axes`).
    """

    name: str
    split_by: tuple[str, ...] = ()


DENSE = ParameterGroup("dense")
