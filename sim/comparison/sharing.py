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

_TARGET = 0.5
_LEARNING: dict[str, Any] = {  # a task on which graphs, staleness and drift matter
    "task": "perceptron",
    "size": 16,
    "unlike": 1.0,  # a worker sees its own part of the labels alone
    "rate": 0.05,  # of a gradient by itself; an example that is stable
    "scaling": "linear",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingComparison:
    """Outcomes by the name of their method, of equal simulated time and laws of learning rate."""

    title: str
    outcomes: dict[str, Outcome]

    @property
    def rows(self) -> list[Cells]:
        """One row a method: rate, waiting, staleness, and the loss at equal time and samples."""
        head = (
            "method",
            "samples/s",
            "waiting",
            "staleness",
            f"loss after {human_seconds(self.seconds)}",
            "worst worker",
            f"after {self.samples:,.0f} samples",
            f"loss {_TARGET} after",
        )
        return [head, *(self._row(method, outcome) for method, outcome in self.outcomes.items())]

    def _row(self, method: str, outcome: Outcome) -> Cells:
        idle = outcome.shares["waiting"] + outcome.shares["idle"]
        reached, alike = outcome.time_to(_TARGET), outcome.loss_after(self.samples)
        return (
            method,
            f"{outcome.samples_per_second:,.0f}",
            f"{idle:.1%}",
            f"{outcome.staleness['mean']:.1f}",
            f"{outcome.loss:.3f}",
            f"{outcome.spread['worst']:.3f}",
            "" if alike is None else f"{alike:.3f}",
            human_seconds(reached) if reached else "not yet",
        )

    @property
    def seconds(self) -> float:
        """How long every method ran."""
        return max(outcome.time for outcome in self.outcomes.values())

    @property
    def samples(self) -> float:
        """How many samples even the slowest method has seen."""
        return min(outcome.curve[-1][1] for outcome in self.outcomes.values())

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
        common = {
            "worker": "node",
            "workers": workers,
            "until": f"{seconds} s",
            "straggler": [{"kind": "lognormal", "sigma": sigma}],
            "learning": _LEARNING,
        }
        scenario = load(
            "gossip-sgp",
            {
                "name": method,
                "sharing": {**common, **sharing},
                "model": model,
                "network.bandwidth": f"{gigabits} Gb/s",
            },
        )
        assert isinstance(scenario, SharingScenario)
        outcomes[method] = simulate_sharing(scenario, keep_spans=0)
    return SharingComparison(title=title, outcomes=outcomes)
