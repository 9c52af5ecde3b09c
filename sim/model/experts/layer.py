"""The work of a layer with experts on one rank.

b s tokens of a rank are sent to k of E experts each, which lie on `ep` ranks; what an expert gets
of all ranks of the group goes through its matrices in one grouped product (Lepikhin et al. 2020;
Gale et al. 2022, MegaBlocks). Each expert is divided over `etp` ranks, which gather the tokens and
scatter the sums. All ranks of a group wait for the fullest one.
"""

from functools import cached_property

from sim.config.errors import InputError
from sim.model.execution import Execution
from sim.model.experts.routing import Load, load_of
from sim.model.experts.settings import Experts
from sim.model.kinds import specialised

# What happens to tokens and gradients in front of experts' products, and on the way to them.
_TOWARDS = ("permute", "dispatch", "sort", "unpermute grad", "combine grad", "unsort grad")


class Layer:
    """A layer with experts on one rank: its run, its settings, what reaches it."""

    def __init__(self, run: Execution) -> None:
        self.run = run
        self.own: Experts = run.block
        self.ep, self.etp = run.sharding.ep, run.sharding.etp

    def check(self) -> None:
        """Raise `InputError` unless the experts' sizes divide."""
        run, experts = self.run, self.own
        if experts.experts % self.ep:
            fault = f"ep = {self.ep} does not divide experts = {experts.experts}"
            raise InputError("plan, ep", fault, "change ep")
        if experts.ffn % self.etp:
            fault = f"etp = {self.etp} does not divide ffn = {experts.ffn}"
            raise InputError("plan, etp", fault, "lower it")
        if run.tp > 1 and not run.sharding.sequence_parallel:
            fault = "experts with tp > 1 take the tokens of each rank"
            raise InputError("plan, sequence_parallel", fault, "set it to true")

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
        """Rows of the rank's grouped products, with an even load."""
        load = self.load.mean if self.run.empty_slots else 1.0 - self.load.dropped
        return self._even * load

    @property
    def most(self) -> float:
        """Rows of the fullest rank."""
        return self._even * self.load.fullest if self.run.empty_slots else self.rows

    @property
    def _even(self) -> int:
        """Rows of an even load of all that tokens send."""
        return self.tokens * self.own.top_k * self.etp

    @property
    def experts(self) -> int:
        """Experts that the rank holds a share of."""
        return self.own.experts // self.ep

    @property
    def size(self) -> float:
        """Bytes of the rows of the rank's experts at the model's width."""
        return self.rows * self.run.model.hidden * self.run.width

    def narrowed(self, name: str) -> float:
        """How wide tokens are on a way, against activations: towards experts they may go in a
        recipe's format, home they go as they are."""
        towards = self.ep > 1 and name in _TOWARDS
        return self.run.dispatched_width / self.run.width if towards else 1.0


def dropped(run: Execution) -> float:
    """The share of all that tokens send to experts that is dropped, in the mean of the layers."""
    layers = [own for kind in run.model.kinds for _, own in [specialised(kind, run)]]
    shares = [Layer(layer).load.dropped for layer in layers if isinstance(layer.block, Experts)]
    return sum(shares) / len(shares) if shares else 0.0
