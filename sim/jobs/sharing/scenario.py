"""A scenario with a `[sharing]` table."""

from typing import Annotated, Any, ClassVar

from sim.config.dataclass import dataclass
from sim.config.schema import Tagged
from sim.hardware.stack import Stack
from sim.jobs.sharing.own_method import method_of
from sim.jobs.sharing.plan import Sharing, methods
from sim.parallel.plan import Plan
from sim.scenario.scenario import BaseScenario, named_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingScenario(BaseScenario):
    """Workers that share updates by a `method`.

    Without a `[plan]`, a worker is a GPU, a node or a number of GPUs. With a `[plan]`, it is the
    group that the plan lays out. `[sharing.times]` states how long a step takes without a model.
    """

    kind: ClassVar[str] = "sim.jobs.sharing.kind"

    stack: str | Stack = "pytorch-ddp"
    backend: str = "nccl"
    plan: Plan | None = None
    sharing: Annotated[Sharing, Tagged("method", methods, of_file=method_of)]

    def __post_init__(self) -> None:
        BaseScenario.__post_init__(self)
        for key, instead in (("checkpoints", "leave checkpoints out"),
                             ("loader", "count its seconds in [sharing.times]"),
                             ("jitter", "write [[sharing.straggler]]")):  # fmt: skip
            if getattr(self, key) is not None:
                fault = f"{key} has no effect beside [sharing], on workers that share updates"
                raise ValueError(f"{fault}; {instead}, or leave [sharing] out")

    @property
    def layout(self) -> Sharing:
        return self.sharing

    @property
    def columns(self) -> dict[str, Any]:
        return named_columns(self) | {"method": self.sharing.method}
