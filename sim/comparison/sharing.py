"""Methods of sharing updates side by side on the same job (`notebooks/which_sharing.ipynb`)."""

from dataclasses import dataclass
from typing import Any

from sim.config.units import human_seconds
from sim.plots import loss, picture
from sim.results.outcome import Outcome
from sim.results.outcome_text import aligned, html_table
from sim.results.tables import Cells, html_image
from sim.scenario.scenario import SharingScenario, load
from sim.simulate_sharing import simulate_sharing

_SERVER: dict[str, Any] = {"method": "parameter_server", "shards": 2}

METHODS: dict[str, dict[str, Any]] = {
    "ring all-reduce": {"method": "all_reduce"},
    "ring, overlapped": {"method": "all_reduce", "overlap": True},
    "server, synchronous": {**_SERVER, "mode": "bsp"},
    "server, bound 1": {**_SERVER, "mode": "ssp", "bound": 1},
    "server, asynchronous": {**_SERVER, "mode": "async"},
    "gossip, D-PSGD": {"method": "gossip", "algorithm": "d_psgd"},
    "gossip, AD-PSGD": {"method": "gossip", "algorithm": "ad_psgd"},
    "gossip, push-sum": {"method": "gossip", "algorithm": "sgp", "overlap": True},
    "local SGD, 10 steps": {"method": "local_sgd", "period": 10},
}

# A gradient moves the weights equally far with every method: where n of them are averaged, the rate
# is n times as high (Goyal et al. 2017, section 2.1).
_RATE = 0.01
_TARGET = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingComparison:
    """Outcomes by the name of their method, of equal simulated time."""

    title: str
    outcomes: dict[str, Outcome]

    @property
    def rows(self) -> list[Cells]:
        """One row a method: rate, waiting, staleness, time to a loss."""
        head = ("method", "samples/s", "waiting", "staleness", f"loss {_TARGET} after")
        return [head, *(_row(method, outcome) for method, outcome in self.outcomes.items())]

    @property
    def fastest(self) -> str:
        """The method that reached the loss first, or came closest to it."""

        def key(method: str) -> tuple[float, float]:
            outcome = self.outcomes[method]
            return outcome.time_to(_TARGET) or float("inf"), outcome.loss or 0.0

        return min(self.outcomes, key=key)

    def figure(self) -> Any:
        """Loss against time and against samples, a line a method."""
        return loss.figure(self.outcomes.values(), names=list(self.outcomes), title=self.title)

    def __str__(self) -> str:
        return f"{self.title}\n{aligned(self.rows)}"

    def png(self) -> bytes:
        """The figure as a picture."""
        return picture.rendered(self.figure(), dpi=60)

    def _repr_html_(self) -> str:
        return f"<b>{self.title}</b>{html_table(self.rows)}{html_image(self.png())}"


def compare(
    workers: int = 8,
    gigabits: float = 10.0,
    sigma: float = 0.3,
    *,
    model: str = "resnet50",
    seconds: float = 10.0,
) -> SharingComparison:
    """All methods on `workers` nodes of 8 V100s with links of so many Gbit/s.

    Stragglers are lognormal with `sigma`; each method runs for `seconds` of simulated time.

    >>> outcomes = compare(workers=4, seconds=2.0).outcomes
    >>> len(outcomes), all(outcome.updates > 0 for outcome in outcomes.values())
    (9, True)
    """
    title = f"{model} on {workers} nodes, {gigabits:g} Gb/s, stragglers {sigma:g}"
    outcomes = {}
    for method, sharing in METHODS.items():
        alone = sharing.get("mode") in ("async", "ssp")
        rate = _RATE * (1 if alone else workers)
        common = {
            "worker": "node",
            "workers": workers,
            "until": f"{seconds} s",
            "straggler": [{"kind": "lognormal", "sigma": sigma}],
            "learning": {"task": "quadratic", "rate": rate, "unlike": 0.2},
        }
        scenario = load(
            "gossip-sgp",
            {
                "sharing": {**common, **sharing},
                "model": model,
                "network.bandwidth": f"{gigabits} Gb/s",
            },
        )
        assert isinstance(scenario, SharingScenario)
        outcomes[method] = simulate_sharing(scenario, keep_spans=0)
    return SharingComparison(title=title, outcomes=outcomes)


def _row(method: str, outcome: Outcome) -> Cells:
    idle = outcome.shares["waiting"] + outcome.shares["idle"]
    reached = outcome.time_to(_TARGET)
    return (
        method,
        f"{outcome.samples_per_second:,.0f}",
        f"{idle:.1%}",
        f"{outcome.staleness['mean']:.1f}",
        human_seconds(reached) if reached else "not yet",
    )
