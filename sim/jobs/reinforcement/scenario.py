"""A scenario with a `[reinforcement]` table: prompts, answers, and how trainer and servers take
turns."""

from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

from sim.config.checked import Checked
from sim.config.dataclass import dataclass
from sim.config.schema import Tagged
from sim.config.units import BytesPerSecond, Ge, Lt
from sim.hardware.stack import Stack
from sim.jobs.generation.layout import Layout
from sim.jobs.generation.lengths import LAWS, Constant, Law, Lengths
from sim.jobs.reinforcement.training import Deal
from sim.parallel.mesh import axes
from sim.parallel.plan import Plan
from sim.scenario.scenario import BaseScenario, named_columns
from sim.scenario.setup import load_topology

Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
NonNegative = Annotated[float, Ge(0)]
Way = Literal["broadcast", "buckets", "sharded", "host", "storage"]
ALoad = Literal["optimizer", "gradients", "weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service for which answers wait. The law `of` gives its seconds for an answer; it serves up
    to `workers` answers at a time (None: any number)."""

    of: Annotated[Law, Tagged("law", lambda: LAWS, inline=True, default="constant")]
    workers: Count | None = None

    def divided(self, parts: int) -> "Service":
        """The service with `workers` divided by `parts`."""
        return replace(self, workers=self.workers and self.workers // parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward(Checked):
    """The source of an answer's reward: a rule or a sandbox (`service`), or a `model`. The model
    reads the answer in a forward pass on `gpus` GPUs of its own, in a `layout`."""

    service: Service | None = None
    model: str = ""
    gpus: Natural = 0
    layout: Layout = field(default_factory=Layout)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if bool(self.model) == bool(self.service):
            raise ValueError("give the service of a rule or a sandbox, or a model, not both")
        if bool(self.model) != bool(self.gpus):
            raise ValueError("a reward model needs GPUs of its own: give model and gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools(Checked):
    """Calls of tools or steps of an environment. `calls` (per answer) and `tokens` (per result)
    follow laws; an answer waits for the `service`. The calls divide the answer's own tokens evenly.
    """

    calls: Annotated[Law, Tagged("law", lambda: LAWS, default="constant")]
    tokens: Annotated[Law, Tagged("law", lambda: LAWS, default="constant")]
    service: Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers(Checked):
    """Where answers are written: on `gpus` GPUs of the servers' own, and with `shared` also on the
    trainer's GPUs while it does not train. A server has the GPUs of its `layout`; `tuning` alters
    values of its engine's file, such as `memory`, the engine's share of a GPU's memory."""

    engine: str = "vllm"
    tuning: dict[str, Any] = field(default_factory=dict)
    gpus: Natural = 0
    shared: bool = False
    layout: Layout = field(default_factory=Layout)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not (self.gpus or self.shared):
            raise ValueError("no server has GPUs: give gpus of their own, or shared = true")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTransfer(Checked):
    """How weights reach the servers, after each step of the trainer.

    "broadcast": weights are gathered on every rank of the trainer, and one rank sends them to all
    servers. "buckets": all ranks broadcast in turn. Each rank keeps its part of the tensors in
    pinned memory of its host, which is allocated anew each time. "sharded": each rank sends its
    shard to the servers that need it. "host": shards pass through the memory of both hosts.
    "storage": weights are written to the cluster's `[storage]` and read from it, at its bandwidth
    or at `storage` B/s. `tensor` is the software's cost of each tensor (s): gathering, sending,
    renaming it for the other layout, loading. Each expert has tensors of its own, so this cost is
    most of the time for a mixture of experts. For software that sends buckets, it is 0.
    """

    way: Way = "broadcast"
    storage: BytesPerSecond | None = None
    # verl: 15.76 s for Qwen3-30B-A3B (12,434 matrices as the trainer holds them) from 16 H20s to 16
    # other H20s. The links need only 1.57 s of this time.
    tensor: NonNegative = 1.14e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforcement(Checked):
    """The loop of a trainer and its servers.

    A step trains on `prompts` prompts with `answers` answers each (a prompt's answers are a group),
    in updates of the plan's `global_batch` answers. Then servers get the new weights (a version).
    The trainer takes `chunk` prompts at once (0: all of a step), in the order in which their groups
    become ready. At most `concurrent` groups run at a time (0: any number).

    `staleness` (eta) bounds how many groups are begun: at version v, at most (v + 1 + eta +
    oversample) x prompts. Staleness 0 is on-policy, 1 is one step off, any other value is
    asynchronous. Groups begun because of `oversample` may not be needed. When the step is full,
    these groups are dropped or kept, as `surplus` says. A share `filtered` of groups teaches
    nothing and is replaced (dynamic sampling).

    `swap` says what happens to running answers when new weights arrive. "drain": the weights wait
    for the answers. "continue": the answers go on with the new weights, with their cache kept or
    `recompute`d. "restart": the answers begin anew.

    `old` and `reference` are forward passes over a step's answers, for log-probabilities under the
    trainer's weights and under the weights of a reference. The trainer packs answers into rows of
    at most `row` tokens (0: the longest prompt and answer); `deal` divides them
    (`training.Training`). A single process may take answers from the servers and hand them to the
    ranks, padded to the longest prompt and answer. It takes `collected` seconds for each token from
    the servers. Before each pass and before the updates, it takes `controller` seconds for each
    token that it hands out. `offload` names tensors that the trainer keeps on the host while
    servers use its GPUs. `parked` tensors are on the host between updates, in memory that is pinned
    anew each time. Figures are means of `steps` steps after the first `warmup` steps. Of every
    `sample` servers with their prompts, a single server is played, and each of its answers counts
    `sample` times.
    """

    prompts: Count
    answers: Count
    steps: Count = 4
    warmup: Natural = 1
    seed: Natural = 0
    sample: Count = 1
    chunk: Natural = 0
    staleness: NonNegative = 0.0
    concurrent: Natural = 0
    oversample: NonNegative = 0.0
    surplus: Literal["drop", "keep"] = "drop"
    filtered: Annotated[NonNegative, Lt(1)] = 0.0
    swap: Literal["drain", "continue", "restart"] = "drain"
    recompute: bool = True
    old: bool = True
    reference: bool = False
    row: Natural = 0
    deal: Deal = "rows"
    collected: NonNegative = 0.0
    controller: NonNegative = 0.0
    offload: tuple[ALoad, ...] = ("optimizer", "gradients")
    parked: tuple[ALoad, ...] = ()
    prompt: Lengths
    answer: Lengths
    servers: Servers
    weights: WeightTransfer = field(default_factory=WeightTransfer)
    reward: Reward = field(default_factory=lambda: Reward(service=Service(of=Constant(value=0.0))))
    tools: Tools | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.chunk and self.prompts % self.chunk:
            raise ValueError(f"chunk = {self.chunk} does not divide the {self.prompts} prompts")

    @property
    def parts(self) -> dict[str, int]:
        """The numbers that `sample` has to divide, by key."""
        found = {"chunk" if self.chunk else "prompts": self.taken, "concurrent": self.concurrent,
                 "reward.gpus": self.reward.gpus // self.reward.layout.gpus}  # fmt: skip
        services = {"reward.service": self.reward.service}
        services |= {"tools.service": self.tools.service} if self.tools else {}
        for name, service in services.items():
            found[f"{name}.workers"] = (service and service.workers) or 0
        return found

    @property
    def sampled(self) -> "Reinforcement":
        """The loop of the played servers and prompts; a token stands for `sample` tokens."""
        each = self.sample
        if each == 1:
            return self
        reward, tools = self.reward, self.tools
        return replace(
            self,
            prompts=self.prompts // each,
            chunk=self.chunk // each,
            concurrent=self.concurrent // each,
            collected=self.collected * each,
            controller=self.controller * each,
            reward=replace(reward, service=reward.service and reward.service.divided(each)),
            tools=tools and replace(tools, service=tools.service.divided(each)),
        )

    @property
    def expected(self) -> float:
        """The mean tokens of an answer with its prompt and results of tools."""
        tools = self.tools
        results = tools.calls.expected() * tools.tokens.expected() if tools else 0.0
        return self.prompt.expected + self.answer.expected + results

    @property
    def taken(self) -> int:
        """The number of prompts that the trainer takes at once."""
        return self.chunk or self.prompts

    def padded(self, groups: int) -> int:
        """Tokens of `groups` groups, padded to the longest prompt and answer."""
        return groups * self.answers * (self.prompt.cap + self.answer.cap)

    @property
    def mode(self) -> str:
        """The name of the way in which trainer and servers take turns."""
        if not self.staleness:
            return "on-policy"
        return "one step off" if self.staleness == 1.0 and self.swap == "drain" else "asynchronous"

    @property
    def placement(self) -> str:
        """The name of the servers' placement relative to the trainer."""
        if not self.servers.shared:
            return "separate"
        return "hybrid" if self.servers.gpus else "colocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforcementScenario(BaseScenario):
    """A model that servers run and a `[plan]` trains, in turns or at the same time.

    `gpus` is the number of all GPUs. The first GPUs are the trainer's; the GPUs of servers and of a
    reward model follow.
    """

    kind: ClassVar[str] = "sim.jobs.reinforcement.kind"

    stack: str | Stack = "megatron-core"
    plan: Plan
    reinforcement: Reinforcement

    def __post_init__(self) -> None:
        BaseScenario.__post_init__(self)
        if not self.model:
            raise ValueError("no model is named: set model")
        for key in ("checkpoints", "loader", "jitter"):
            if getattr(self, key) is not None:
                raise ValueError(f"{key} beside [reinforcement] is not simulated; leave {key} out")
        answers = self.reinforcement.taken * self.reinforcement.answers
        if answers % self.plan.global_batch:
            fault = f"the trainer takes {answers:,} answers at once, which is no multiple of"
            raise ValueError(f"{fault} plan.global_batch = {self.plan.global_batch:,}")

    def resized(self, gpus: int) -> "ReinforcementScenario":
        """The scenario on `gpus` GPUs. Servers and a reward model with GPUs of their own keep their
        shares of all GPUs, in whole servers."""
        loop, plan = self.reinforcement, self.plan
        before = self.gpus or load_topology(self).gpus
        if self.gpus is None and plan.dp is not None:
            before = plan.degree(axes()) + loop.servers.gpus + loop.reward.gpus

        def share(count: int, each: int) -> int:
            return max(round(count * gpus / before / each), 1) * each if count else 0

        servers = replace(loop.servers, gpus=share(loop.servers.gpus, loop.servers.layout.gpus))
        reward = replace(loop.reward, gpus=share(loop.reward.gpus, loop.reward.layout.gpus))
        divided = replace(loop, servers=servers, reward=reward)
        return replace(self, gpus=gpus, plan=replace(plan, dp=None), reinforcement=divided)

    @property
    def layout(self) -> Reinforcement:
        return self.reinforcement

    @property
    def columns(self) -> dict[str, Any]:
        loop = self.reinforcement
        return named_columns(self) | {
            "mode": loop.mode,
            "placement": loop.placement,
            "staleness": loop.staleness,
        }
