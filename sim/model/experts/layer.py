"""The work of a layer with experts on one rank.

Each token of a rank is sent to some of the experts, which are spread over `ep` ranks. A rank
multiplies the tokens that its experts get, from all ranks of the group, in one grouped product
(Lepikhin et al. 2020; Gale et al. 2022, MegaBlocks). Each expert is divided over `etp` ranks, which
gather the tokens and scatter the sums. All ranks of a group wait for the fullest rank. The router
computes the scores of all experts, and the best experts for each token.
"""

from dataclasses import field, replace
from functools import cached_property

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.model.execution import Execution
from sim.model.experts.routing import Load, Routing, load_of
from sim.model.kernels import MemoryBound
from sim.model.kinds import specialised
from sim.model.linear import Linear
from sim.model.operators import Operator

_MOST_EXPERTS = 100_000  # fifty times as many as in GShard


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Keys of a kind of layer with experts.

    Each token takes `top_k` of `experts` feed-forward blocks of inner width `ffn`. Every token also
    takes `shared` further experts (or one of width `shared_ffn`); a `shared_gate` multiplies their
    result by a sigmoid of the token. With `groups` the experts of a token lie in at most `limit`
    groups. Experts see tokens in `latent` columns, projected from the hidden width and back (0: in
    the hidden width). An expert drops tokens beyond `capacity` times an even load; 0 drops none.
    `routing` says how unequal the experts' loads are.
    """

    experts: int
    top_k: int
    ffn: int
    shared: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    groups: int = 1
    limit: int = 0
    latent: int = 0
    capacity: float = 0.0
    routing: Routing = field(default_factory=Routing)

    def __post_init__(self) -> None:
        if self.experts > _MOST_EXPERTS:
            fault = f"experts = {self.experts:,} is more than can be simulated"
            raise ValueError(f"{fault}; use at most {_MOST_EXPERTS:,}")
        if self.top_k > self.experts:
            raise ValueError(f"top_k = {self.top_k} of {self.experts} experts; lower top_k")
        if self.experts % self.groups or self.limit > self.groups:
            fault = f"groups = {self.groups}, limit = {self.limit} for {self.experts} experts"
            raise ValueError(f"{fault}; choose groups that divide experts, and limit <= groups")
        if self.groups > 1 and not self.limit:
            fault = f"groups = {self.groups} without limit restrict nothing"
            raise ValueError(f"{fault}; set limit (groups that a token takes), or leave groups out")
        if self.limit and self.groups == 1:
            raise ValueError(f"limit = {self.limit} without groups; set groups or leave limit out")
        if self.limit * (self.experts // self.groups) < self.top_k and self.limit:
            fault = f"top_k = {self.top_k} of {self.limit} groups of {self.experts // self.groups}"
            raise ValueError(f"{fault}; lower top_k or groups, or raise limit")
        if not (self.capacity == 0.0 or 0.0 < self.capacity <= self.experts):
            raise ValueError(f"capacity = {self.capacity} is outside (0, experts]; 0 drops none")

    @property
    def chosen(self) -> float:
        """The share of the routed experts that a token goes to."""
        return self.top_k / self.experts

    @property
    def shared_width(self) -> int:
        """The inner width of all shared experts together."""
        return self.shared_ffn or self.shared * self.ffn


# The kernels and transfers of tokens, and of gradients, on the way to the experts' products.
_TOWARDS = ("permute", "dispatch", "sort", "unpermute grad", "combine grad", "unsort grad")


class Layer:
    """A layer with experts on one rank: its run, its settings, and the tokens that reach it."""

    def __init__(self, run: Execution) -> None:
        self.run = run
        self.own: Experts = run.block
        self.ep, self.etp = run.sharding.ep, run.sharding.etp

    def check(self) -> None:
        """Raise `InputError` unless the ranks divide the experts and their sizes."""
        run, experts = self.run, self.own
        if experts.experts % self.ep:
            fault = f"ep = {self.ep} does not divide experts = {experts.experts}"
            raise InputError("plan, ep", fault, "change ep")
        if experts.ffn % self.etp:
            fault = f"etp = {self.etp} does not divide ffn = {experts.ffn}"
            raise InputError("plan, etp", fault, "lower it")
        if run.tp > 1 and not run.sharding.sequence_parallel:
            fault = "experts with tp > 1 need tokens that are divided over the ranks"
            raise InputError("plan, sequence_parallel", fault, "set it to true")

    @property
    def inner(self) -> "Layer":
        """The layer as its experts see it, with `latent` columns in place of the hidden width."""
        if not self.own.latent:
            return self
        return Layer(replace(self.run, model=replace(self.run.shape, hidden=self.own.latent)))

    @cached_property
    def load(self) -> Load:
        experts = self.own
        return load_of(
            experts.routing,
            experts=experts.experts,
            ranks=self.ep,
            capacity=experts.capacity,
            layer=self.run.layer,
            layers=self.run.model.layers,
        )

    @property
    def tokens(self) -> int:
        """Tokens that the rank routes."""
        return self.run.local

    @property
    def rows(self) -> float:
        """Rows of the grouped products of the mean rank."""
        load = self.load.mean if self.run.empty_slots else 1.0 - self.load.dropped
        return self._even * load

    @property
    def most(self) -> float:
        """Rows of the grouped products of the fullest rank."""
        return self._even * self.load.fullest if self.run.empty_slots else self.rows

    @property
    def _even(self) -> int:
        """Rows of a rank under an even load, if no token is dropped."""
        return self.tokens * self.own.top_k * self.etp

    @property
    def experts(self) -> int:
        """Number of experts that the rank holds, in whole or in part."""
        return self.own.experts // self.ep

    @property
    def size(self) -> float:
        """Bytes of the rows of the rank's experts at the model's width."""
        return self.rows * self.run.model.hidden * self.run.width

    def narrowed(self, name: str) -> float:
        """Return the width of tokens in the kernel or transfer `name`, relative to activations.
        Towards experts tokens may be in a recipe's format; on the way back they are not cast."""
        towards = self.ep > 1 and name in _TOWARDS
        return self.run.dispatched_width / self.run.width if towards else 1.0


def dropped(run: Execution) -> float:
    """Return the share of token-expert pairs that are dropped, as a mean over the layers."""
    layers = [layer for kind in run.model.kinds for _, layer in [specialised(kind, run)]]
    shares = [Layer(layer).load.dropped for layer in layers if isinstance(layer.block, Experts)]
    return sum(shares) / len(shares) if shares else 0.0


# Kernels of an unfused router: softmax or sigmoid, top-k, two scatters, normalisation, auxiliary
# loss (Megatron-LM, megatron/core/transformer/moe/moe_utils.py, topk_routing_with_score_function
# and switch_load_balancing_loss_func). Each reads and writes the fp32 scores about once.
_ROUTER_LAUNCHES, _FUSED_ROUTER_LAUNCHES = 14, 3


def router(layer: Layer) -> Operator:
    """Return the router: scores of all experts, the best experts for each token, and the loss that
    balances the experts."""
    run, experts = layer.run, layer.own
    if experts.routing.law == "round-robin":
        return _in_turn(layer)
    scores = layer.tokens * experts.experts
    linear = Linear(
        run=replace(run, precision="fp32" if run.width == 4 else "bf16", recipe=None),
        name="router",
        rows=layer.tokens,
        inputs=run.model.hidden,
        outputs=(experts.experts,),
        bias=run.shape.bias,
    )
    back = _router_gradients(layer, linear)
    launches = _FUSED_ROUTER_LAUNCHES if run.fused("router") else _ROUTER_LAUNCHES
    choose = MemoryBound(name="top-k", bytes=8.0 * scores * launches, launches=launches)
    size = float(layer.tokens * run.model.hidden * run.width)
    return Operator(
        name="router",
        forward=(*linear.forward, choose),
        input_gradient=(choose, *back.input_gradient),
        weight_gradient=back.weight_gradient,
        inputs=size,
        saved=4.0 * scores,
        saved_for_weights=0.0 if experts.shared_width else size,
        made=4.0 * scores,
        handed=4.0 * scores,
        parameters=float(linear.weights + experts.experts * run.shape.bias),
        matrices=linear.matrices,
    )


def _router_gradients(layer: Layer, linear: Linear) -> Operator:
    """Return the gradients of the router's product. With `router_fp32` their operands are cast to
    fp32 and their results cast back; the forward product still has bf16 operands (Megatron-LM,
    moe/moe_utils.py, RouterGatingLinearFunction, by TransformerEngine)."""
    run = layer.run
    operator = Operator(
        input_gradient=linear.input_gradient, weight_gradient=linear.weight_gradient
    )
    if not run.fusion.router_fp32 or run.width == 4:
        return operator
    wide = replace(linear, run=replace(linear.run, precision="tf32"))
    both = float(layer.tokens * run.model.hidden * (run.width + 4))
    casts = [MemoryBound(name=f"router {name} cast", bytes=both) for name in ("grad", "input")]
    return Operator(
        input_gradient=(*wide.input_gradient, casts[0]),
        weight_gradient=(casts[1], *wide.weight_gradient),
    )


def _in_turn(layer: Layer) -> Operator:
    """Return the operator that takes a router's place in benchmarks (FakeBalancedGate). It
    assigns tokens to the experts in turn, with equal weights: a range of integers, its remainders,
    ones, their quotient, and a cast."""
    chosen = float(layer.tokens * layer.own.top_k)
    made = MemoryBound(name="experts in turn", bytes=chosen * (24 + 18), launches=5)
    size = float(layer.tokens * layer.run.model.hidden * layer.run.width)
    return Operator(name="router", forward=(made,), inputs=size)
