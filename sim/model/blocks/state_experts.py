"""The layer with experts, and with a state in place of attention, as in Jamba and Qwen3-Next."""

from sim.config.dataclass import dataclass
from sim.model.blocks.experts import experts_part
from sim.model.blocks.state import state_part
from sim.model.execution import Execution
from sim.model.experts.layer import Experts
from sim.model.operators import Operator
from sim.model.state_space import StateSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class StateExperts(Experts):
    """Keys of experts, and a table `mixer` with the keys of a state."""

    mixer: StateSpace

    @property
    def held(self) -> int:
        """The number of elements of a sequence's state."""
        return self.mixer.held


SETTINGS = StateExperts


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    block: StateExperts = run.block
    return (*state_part(run, block.mixer), *experts_part(run))
