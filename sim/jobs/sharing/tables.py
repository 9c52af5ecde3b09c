"""The tables inside `[sharing]`: unlike, slow and failing workers, changing links, learning."""

from typing import Annotated, Literal

from sim.config.checked import refuse
from sim.config.dataclass import dataclass
from sim.config.schema import Tagged
from sim.config.units import Ge, Gt, Le, Lt, Seconds
from sim.jobs.sharing.learning.optimizers import Rule, Schedule
from sim.variability.laws import LAWS, SlowdownLaw

TASKS = ("none", "quadratic", "logistic", "perceptron", "digits", "residual", "characters")
Count = Annotated[int, Ge(1), Le(1_000_000)]  # with a larger number a simulation would not end
Natural = Annotated[int, Ge(0)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
_FARTHEST = 1e6  # if a worker's optimum is farther away, rounding hides the common optimum 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step that was measured: seconds of its passes and the number of parameters."""

    forward: Seconds
    backward: Seconds
    parameters: Positive
    layers: Count = 1
    optimizer: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup:
    """Workers that differ from the others: they run on another `device`, with another software
    `stack` (a CPU among GPUs), or are `slowdown` times as slow."""

    ranks: tuple[Natural, ...]
    device: str = ""
    stack: str = ""
    slowdown: Positive = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerCause:
    """Steps that take longer by a law, on the given ranks or nodes, or on all workers.

    With `links`, these links are slow instead of the steps; their factor (at least 1) changes
    every `interval`. Factors of several causes multiply.
    """

    law: Annotated[SlowdownLaw, Tagged("kind", lambda: LAWS, inline=True)]
    ranks: tuple[Natural, ...] | None = None
    nodes: tuple[Natural, ...] | None = None
    links: tuple[str, ...] = ()
    interval: Annotated[Seconds, Gt(0)] = 1.0

    def __post_init__(self) -> None:
        if self.links and (self.ranks is not None or self.nodes is not None):
            raise ValueError("a table cannot slow both links and ranks or nodes; write two tables")
        if not self.links:
            refuse(self, "have no effect on steps; name links", "interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A worker (`rank`) or a `server` fails at `at`. It is back `after` seconds later; without
    `after` it never returns. A worker loses its step; a server without replicas loses all updates
    since its last checkpoint."""

    rank: Natural | None = None
    server: Natural | None = None
    at: Seconds
    after: Seconds | None = None

    def __post_init__(self) -> None:
        if (self.rank is None) == (self.server is None):
            raise ValueError("a fault names one rank or one server; e.g. rank = 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The cost of a failure besides the time of absence.

    Other workers know of the failure `detection` later: after 3 missed keep-alives of 5 s (torch,
    elastic/rendezvous/dynamic_rendezvous.py, `keep_alive_interval`, `keep_alive_max_attempt`). A
    group has formed again `restart` later: for 30 s ranks may still join (same file, `last_call` of
    RendezvousTimeout). Each server keeps `replicas` copies of its shard on the next servers (Li et
    al. 2014). Without copies it goes back to its last checkpoint; it makes a checkpoint every
    `checkpoint` updates.
    """

    detection: Seconds = 15.0
    restart: Seconds = 30.0
    replicas: Natural = 0
    checkpoint: Count = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange:
    """From `at` on, a link carries 1/`factor` of its capacity."""

    link: str
    at: Seconds
    factor: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """A task of `sim.jobs.sharing.learning`. Workers learn it by updates in their simulated order.
    A task of the user's own is code, and data files run no code: such a task is named on the
    command line or in Python.

    `unlike` makes the workers' data differ: a sample comes from the worker's own part with this
    probability. On a quadratic, `unlike` is how far the workers' optima lie apart. Its gradients
    are linear, so the mean of all workers learns alike on every graph. The (inner) optimizer has
    the rule `optimizer` and the rate `rate`. With `scaling`, `rate` is the rate for a single
    gradient. An average of n gradients (`Sharing.averaged`) has n times this rate with "linear"
    (Goyal et al. 2017; for SGD and LARS), and sqrt(n) times with "sqrt" (Krizhevsky 2014; You et
    al. 2020, with LAMB). In the first `warmup` steps the rate climbs from `rate`, or from 0 without
    scaling. Then it follows the `schedule`: "cosine" lets it fall over `span` steps, "step" divides
    it by ten after each `span` of steps. `beta` is the momentum; `trust` and `weight_decay` mean
    the same as in `Optimizer`. An update of shared weights that is s updates late is multiplied by
    (1 + s)^-`decay`. `decay` is 1 in Zhang et al. 2016 (arXiv 1511.05950), 0.5 in FedBuff (Nguyen
    et al. 2022; FLSim's PolynomialStalenessWeight).
    """

    task: str = "perceptron"
    size: Count = 10
    noise: NonNegative = 0.1
    condition: Annotated[float, Ge(1)] = 10.0
    unlike: NonNegative = 0.0
    optimizer: Rule = "sgd"
    rate: Positive = 0.1
    scaling: Literal["none", "linear", "sqrt"] = "none"
    warmup: Natural = 0
    schedule: Schedule = "constant"
    span: Count | None = None
    beta: Annotated[NonNegative, Lt(1)] = 0.9
    weight_decay: NonNegative = 0.0
    trust: Positive = 1e-3
    decay: NonNegative = 0.0
    target: Positive | None = None

    def __post_init__(self) -> None:
        if self.task.endswith(".py"):
            raise ValueError(f"task = {self.task!r} would run code from data; give it as --task")
        if self.task not in TASKS:
            raise ValueError(f"there is no task {self.task!r}; it is one of {', '.join(TASKS)}")
        if self.task != "quadratic":
            why = 'have no effect on this task; set task = "quadratic"'
            refuse(self, why, "noise", "condition")
        most = _FARTHEST if self.task == "quadratic" else 1.0
        if self.unlike > most:
            raise ValueError(f"unlike = {self.unlike:g} exceeds the limit of this task, {most:g}")
        spans = self.schedule in ("step", "cosine")
        if spans and self.span is None:
            raise ValueError(f"schedule = {self.schedule!r} needs span, a number of steps")
        if not spans:
            refuse(self, 'have no effect on this schedule; set schedule = "cosine"', "span")
        if self.schedule == "inverse-root" and not self.warmup:
            raise ValueError('schedule = "inverse-root" needs warmup: it falls with sqrt(warmup)')
        if self.optimizer != "lars":
            refuse(self, 'have no effect on this rule; set optimizer = "lars"', "trust")
        if self.optimizer in ("sgd", "adagrad", "rmsprop"):
            refuse(self, 'have no effect on this rule; set optimizer = "momentum"', "beta")
