"""How a model is divided over the GPUs of a server, and in which precision."""

from typing import Annotated

from sim.config.checked import Checked
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Ge
from sim.model.execution import Sharding
from sim.model.kernels import Precision
from sim.model.kinds import experts_of
from sim.model.model import Model

Count = Annotated[int, Ge(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(Checked):
    """The GPUs of a server: `tp` ranks share each layer, `pp` stages share the layers, `dp` groups
    have sequences of their own. The tp x dp ranks of a stage share the experts: `ep` groups hold
    different experts, and each rank of a group holds a share of the group's experts.

    `precision` is the precision of products and weights, `cache` the precision of keys and values.
    """

    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    ep: Count = 1
    precision: Precision = "bf16"
    cache: Precision = "bf16"

    @property
    def ranks(self) -> int:
        """The number of GPUs of a stage."""
        return self.tp * self.dp

    @property
    def gpus(self) -> int:
        """The number of GPUs of a server."""
        return self.ranks * self.pp

    @property
    def etp(self) -> int:
        """The number of ranks that share an expert."""
        return self.ranks // self.ep

    def sharding(self, model: Model) -> Sharding:
        """The parallel degrees and mesh axes of a layer; layers with experts divide their tokens
        over the tp ranks (`sim.model.experts.layer`)."""
        experts = bool(experts_of(model))
        return Sharding(
            tp=self.tp,
            sequence_parallel=experts and self.tp > 1,
            ep=self.ep if experts else 1,
            etp=self.etp if experts else 1,
            tensor=("tp",) if self.tp > 1 else (),
            experts=("ep",) if self.ep > 1 else (),
            expert_tensor=("etp",) if self.etp > 1 else (),
        )

    def check(self, model: Model, where: str) -> None:
        """Raise `InputError` for a layout that cannot divide the model."""
        try:
            Sharding(tp=self.tp).check(model)
        except InputError as error:
            raise InputError(where, error.what, error.remedy) from None
        if self.pp > model.layers:
            fault = f"pp = {self.pp} stages for {model.layers} layers"
            raise InputError(where, fault, f"set pp <= {model.layers}")
        if experts_of(model):
            if self.ranks % self.ep:
                fault = f"ep = {self.ep} does not divide the {self.ranks} ranks of a stage, tp x dp"
                raise InputError(where, fault, "change ep")
        elif self.ep > 1:
            raise InputError(where, "ep is set but the model has no experts", "leave ep out")
        elif self.dp > 1:
            fault = f"dp = {self.dp}, but without experts the dp groups of a server share nothing"
            raise InputError(where, fault, "set servers instead")
