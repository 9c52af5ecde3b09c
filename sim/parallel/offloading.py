"""The `[plan.offload]` table of a scenario: states and activations that lie on the host."""

from dataclasses import dataclass, replace

from sim.config.units import Portion
from sim.model.checkpointing import FULL, Checkpointing, Names


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Shares of what lies in the host's memory instead of the device's.

    `optimizer` of its states, which the host's processors update then; `parameters` of the shards
    of ZeRO-3; `activations` of the layers of each chunk, the first ones. With `overlap` copies run
    beside the layers, without it the device waits for each. `nvme` keeps the states on the node's
    drives between updates.
    """

    optimizer: Portion = 0.0
    parameters: Portion = 0.0
    activations: Portion = 0.0
    overlap: bool = True
    nvme: bool = False

    def __bool__(self) -> bool:
        return bool(self.optimizer or self.parameters or self.activations)


ON_DEVICE = Offload()


def with_checkpoints(offload: Offload, checkpointing: Checkpointing, recompute: Names) -> Offload:
    """The same, and all activations where a stack leaves the inputs of layers that run again as a
    whole on the host."""
    if not (checkpointing.on_host and recompute in (FULL, (FULL,))):
        return offload
    return replace(offload, activations=1.0)
