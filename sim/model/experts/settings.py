"""Keys of a layer with experts."""

from dataclasses import dataclass, field

from sim.model.experts.routing import Routing
from sim.model.kinds import settings_of
from sim.model.model import Model

_MOST_EXPERTS = 100_000  # fifty times GShard's


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Keys of a kind of layer with experts.

    `experts` matrices of inner width `ffn`, of which each token takes `top_k`; `shared` more of
    them (or one of width `shared_ffn`) that every token takes, times a sigmoid of its own where
    there is a `shared_gate`. With `groups` a token's experts lie in at most `limit` of them.
    `capacity` is the factor beyond which tokens are dropped, 0 for none (dropless). `routing` says
    how unequal the experts' loads are.
    """

    experts: int
    top_k: int
    ffn: int
    shared: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    groups: int = 1
    limit: int = 0
    capacity: float = 0.0
    routing: Routing = field(default_factory=Routing)

    def __post_init__(self) -> None:
        if self.experts > _MOST_EXPERTS:
            fault = f"experts = {self.experts:,} is more than can be simulated"
            raise ValueError(f"{fault}; use at most {_MOST_EXPERTS:,}")
        if self.top_k > self.experts:
            raise ValueError(f"top_k = {self.top_k} of {self.experts} experts; use 1 to experts")
        if self.experts % self.groups or self.limit > self.groups:
            fault = f"groups = {self.groups}, limit = {self.limit} for {self.experts} experts"
            raise ValueError(f"{fault}; groups divide the experts, limit is at most groups")
        if self.groups > 1 and not self.limit:
            fault = f"groups = {self.groups} without limit restrict nothing"
            raise ValueError(f"{fault}; set limit, of how many a token takes, or leave groups out")
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


def layers_of(model: Model) -> list[Experts]:
    """The experts of a model's layers, for each kind of layer that has any."""
    return [settings for settings in settings_of(model) if isinstance(settings, Experts)]
