"""The space of a search: a job of a given size on given hardware, and its free choices."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import cast

from sim.config.checked import altered
from sim.config.dataclass import dataclass
from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Capabilities, Stack, capabilities_of
from sim.model import reading
from sim.model.kernels import Precision
from sim.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A job and a machine. `named` is the model's name.

    `only` and `without` map the names of choices (`sim.analysis.search.choices`) to allowed and
    excluded values, written as in a plan. For other choices, the search tries all values that the
    software's `capabilities` list at its date `released`. `untold` are choices for which a
    framework's arguments can express only the values of `only`.
    """

    model: Model
    topology: Topology
    stack: Stack
    global_batch: int
    precision: Precision = "bf16"
    named: str = ""
    capabilities: Capabilities = field(default_factory=Capabilities)
    released: str = ""
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    untold: frozenset[str] = frozenset()

    @property
    def gpus(self) -> int:
        return self.topology.gpus

    def allows(self, choice: str, value: str) -> bool:
        """Return whether `only` and `without` leave a value of a choice."""
        only, without = self.only.get(choice, (value,)), self.without.get(choice, ())
        return value in only and value not in without

    def lacks(self, choice: str, value: str) -> str:
        """Return why the software lacks a value of a choice; empty if it has the value."""
        return self.capabilities.lacks(choice, value, self.released)


def space(
    model: str | Model,
    topology: str | Topology,
    *,
    gpus: int | None = None,
    global_batch: int,
    stack: str | Stack = "megatron-core",
    precision: str = "bf16",
    seq: int | None = None,
    only: Mapping[str, tuple[str, ...]] | None = None,
    without: Mapping[str, tuple[str, ...]] | None = None,
    price: str | None = None,
    framework: str | None = None,
    untold: Iterable[str] = (),
) -> Space:
    """Return the space of a search; `model`, `topology` and `stack` are names or objects.
    `framework` is a stack whose latest release must support the layouts, if not the job's own
    stack. `untold` are choices for which the framework can express only the values of `only`.
    Raises `InputError`.

    >>> space("llama2-7b", "dgx-h100-ndr", gpus=16, global_batch=64).topology.nodes
    2
    """
    rent = {} if price is None else {"price.hour": price}
    if isinstance(topology, str):
        cluster = topologies.load(topology, rent)
    else:
        cluster = altered(topology, rent, topology.name)
    cluster = cluster.with_gpus(gpus) if gpus else cluster
    cluster.device.peak_rate(precision)  # refuses a precision that the device does not have
    trained = reading.load(model) if isinstance(model, str) else model
    if seq is not None:
        trained = reading.settled(altered(trained, {"seq": seq}, "--seq"), ("seq",))
    software = stacks.load(stack) if isinstance(stack, str) else stack
    able = software if framework is None else stacks.load(framework)
    return Space(
        model=trained,
        topology=cluster,
        stack=software.running(cast(Precision, precision), where="stack"),
        global_batch=global_batch,
        precision=cast(Precision, precision),
        named=model if isinstance(model, str) else model.name,
        only=only or {},
        without=without or {},
        untold=frozenset(untold),
        capabilities=capabilities_of(able.framework, where=able.name),
        released=software.released if framework is None else "",
    )
