"""A scenario: a model, a cluster, a plan; `sim.kind` reads it from a file."""

from dataclasses import asdict, field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from sim.config import reads
from sim.config.checked import Checked
from sim.config.dataclass import dataclass
from sim.config.schema import section
from sim.config.units import BytesPerSecond, Gt, Number
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Stack
from sim.model.model import Model
from sim.model.transformer import Transformer
from sim.parallel.plan import Plan
from sim.scenario.settings import changes_of

if TYPE_CHECKING:
    from sim.parallel.checkpoint import Checkpoints
    from sim.parallel.loader import Loader
    from sim.variability.laws import Jitter
else:
    Checkpoints = section("sim.parallel.checkpoint:Checkpoints")
    Loader = section("sim.parallel.loader:Loader")
    Jitter = section("sim.variability.laws:Jitter")

Factor = Annotated[float, Gt(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Checked):
    """A rank, a stage, a node or a link that is slower than its peers by `factor`.

    A slow GPU's kernels take `factor` times as long. A slow link has its bandwidth divided by
    `factor` (at least 1), or reduced by the `traffic` of others, which itself is never slowed.
    """

    factor: Factor | None = None
    traffic: BytesPerSecond | None = None
    rank: int | None = None
    stage: int | None = None
    node: int | None = None
    link: str | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        named = [key for key in ("rank", "stage", "node", "link") if getattr(self, key) is not None]
        if len(named) != 1:
            raise ValueError("name one of rank, stage, node or link; e.g. rank = 3")
        if (self.factor is None) == (self.traffic is None):
            raise ValueError("give either a factor, or the traffic of others on a link")
        if self.traffic is not None and self.link is None:
            raise ValueError('traffic is on a link: name it, e.g. link = "node3.nic0"')
        if self.factor == float("inf"):
            raise ValueError("factor must be finite; a slow part does not fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseScenario(Checked):
    """Fields of scenarios of every kind: names of files or, in Python, the objects themselves.

    `kind` is the module of the kind (`sim.kind`). `change` alters single values of the named files
    for this scenario only, by dotted key: `network.bandwidth`, `device.memory`, `model.seq`,
    `stack.overlap_gradients`. `tokens` is the number of tokens of the whole training, `checkpoints`
    describes its checkpoints; both count for its cost. The `loader` brings the samples of a step.
    """

    kind: ClassVar[str]

    name: str = "scenario"
    description: str = ""
    model: str | Transformer | Model = ""  # a table is a transformer
    topology: str | Topology
    stack: str | Stack = ""
    gpus: Annotated[int, Gt(0)] | None = None
    tokens: Number | None = None
    checkpoints: Checkpoints | None = None
    loader: Loader | None = None
    straggler: tuple[Straggler, ...] = ()
    jitter: Jitter | None = None
    change: dict[str, Any] = field(default_factory=dict)

    def changes(self, file: str) -> dict[str, Any]:
        """Return the changes that concern one file (model, stack, topology, device), by key."""
        return changes_of(self.change, file)

    @property
    def layout(self) -> Any:
        """The table that lays the job out, such as its plan; None if there is none."""
        return None

    @property
    def first_seed(self) -> int:
        """The seed of the random numbers in its simulation."""
        return int(getattr(self.layout, "seed", 0))

    @property
    def columns(self) -> dict[str, Any]:
        """The named files, as columns of a sweep's table."""
        return named_columns(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(BaseScenario):
    """A training job whose plan lays out every step.

    >>> plan = Plan(global_batch=64, tp=2)
    >>> Scenario(model="llama3-8b", topology="dgx-h100-ndr", plan=plan).stack
    'megatron-core'
    """

    kind: ClassVar[str] = "sim.simulate"

    model: str | Transformer | Model
    stack: str | Stack = "megatron-core"
    plan: Plan

    @property
    def layout(self) -> Plan:
        return self.plan

    @property
    def first_seed(self) -> int:
        return int(self.changes("topology").get("network.seed", 0))

    @property
    def columns(self) -> dict[str, Any]:
        return named_columns(self) | plan_columns(self.plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterScenario(BaseScenario):
    """A cluster alone, which runs nothing."""


def named_columns(scenario: BaseScenario) -> dict[str, str]:
    """Return the scenario, and the files that it names, as columns of a sweep's table."""
    given = {"model": scenario.model, "topology": scenario.topology, "stack": scenario.stack}
    return {"scenario": scenario.name, **{key: name_of(value) for key, value in given.items()}}


@reads.kept(4, key=lambda plan: plan)
def plan_columns(plan: Plan) -> dict[str, Any]:
    """Return the keys of a plan, as columns of a sweep's table."""
    return {f"plan.{field.name}": plain(getattr(plan, field.name)) for field in fields(plan)}


def plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def name_of(given: str | Model | Stack | Topology) -> str:
    """Return the name of a file or of its object."""
    return given if isinstance(given, str) else given.name
