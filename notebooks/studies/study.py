"""A study: ways of sharing updates at some settings, with several seeds each, and what follows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median
from typing import TYPE_CHECKING, Any

from sim.config.readable import human_seconds
from sim.interface.document import html, terminal
from sim.interface.document.nodes import Document, Picture, Sentence, document, table
from sim.interface.plots import loss
from sim.jobs.sharing.kind import answer, set_up, sharing_of
from sim.jobs.sharing.outcome import Outcome
from sim.kind import described
from sim.results.formatting import Cells

from . import picture as studies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Key = tuple[str, str]  # way, setting

_TOPOLOGY = "example-hosts"  # hosts of one device each
_USUAL: dict[str, Any] = {
    "workers": 8,
    "batch": 16,
    "times": {"forward": "30 ms", "backward": "70 ms", "parameters": 1e6},  # an example: 4 MB
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Study:
    """The `outcomes` of every way and setting, one a seed; `axis` says what a setting is. What is
    asked is when a loss of `target` is reached; `conclusion` says what is seen."""

    title: str
    axis: str
    target: float
    outcomes: Mapping[Key, tuple[Outcome, ...]]
    conclusion: str = ""

    @property
    def ways(self) -> list[str]:
        return list(dict.fromkeys(way for way, _ in self.outcomes))

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(setting for _, setting in self.outcomes))

    def seconds(self, way: str, setting: str) -> list[float]:
        """Time to the target of every seed; without end where it is never reached."""
        return [self._there(own, "seconds") for own in self.outcomes[way, setting]]

    def samples(self, way: str, setting: str) -> list[float]:
        """The samples that it took."""
        return [self._there(own, "samples") for own in self.outcomes[way, setting]]

    def _there(self, outcome: Outcome, key: str) -> float:
        """Where the target is reached and most of the losses from there on are no higher: what
        oscillates passes it, too."""
        curve = outcome.curve
        for n, point in enumerate(curve):
            if point.loss <= self.target >= median(later.loss for later in curve[n:]):
                return float(getattr(point, key))
        return inf

    def pace(self, way: str, setting: str) -> list[float]:
        """Samples a second of every seed."""
        return [own.samples_per_second for own in self.outcomes[way, setting]]

    def time(self, way: str, setting: str) -> float:
        """The median time to the target."""
        return median(self.seconds(way, setting))

    def fastest(self, way: str) -> str:
        """The setting at which a way is first at the target."""
        return min(self.settings, key=lambda setting: self.time(way, setting))

    def first(self, setting: str) -> str:
        """The way that is first at the target."""
        return min(self.ways, key=lambda way: self.time(way, setting))

    def loss(self, way: str, setting: str, **within: float) -> float:
        """The median loss at a moment (`seconds`) or with so many `samples`."""
        found = [own.loss_within(**within) for own in self.outcomes[way, setting]]
        return median(inf if one is None or not isfinite(one) else one for one in found)

    @property
    def end(self) -> float:
        """How long even the shortest run took."""
        return min(own.time for seeds in self.outcomes.values() for own in seeds)

    @property
    def alike(self) -> float:
        """The samples that even the slowest run has seen."""
        return min(own.samples for seeds in self.outcomes.values() for own in seeds)

    @property
    def table(self) -> list[Cells]:
        """Medians over the seeds, and the range of the time."""
        goal = f"loss {self.target:g} after"
        equal = (f"loss at {human_seconds(self.end)}", f"at {self.alike:,.0f} samples")
        head = ("", self.axis, goal, "of the seeds", "samples", "samples/s", *equal)
        return [head, *(self._row(*key) for key in self.outcomes)]

    def _row(self, way: str, setting: str) -> Cells:
        seconds, samples = self.time(way, setting), median(self.samples(way, setting))
        low, high = (_said(end(self.seconds(way, setting))) for end in (min, max))
        return (
            way,
            setting,
            _said(seconds),
            f"{low} to {high}",
            f"{samples:,.0f}" if samples < inf else "",
            f"{median(self.pace(way, setting)):,.0f}",
            f"{self.loss(way, setting, seconds=self.end):.3g}",
            f"{self.loss(way, setting, samples=self.alike):.3g}",
        )

    def plot(self) -> "Figure":
        """Times, samples and pace at every setting; or, with a single one, losses over time."""
        if len(self.settings) > 1:
            return studies.settings(self)
        return loss.figure(self.outcomes.values(), names=self.ways, title=self.title)

    @property
    def document(self) -> Document:
        """The table, the picture, the conclusion."""
        head, *rows = self.table
        drawn = Picture(says=self.title, draw=self.plot)
        return document(self.title, table(rows, head), drawn, Sentence(self.conclusion))

    def __str__(self) -> str:
        return terminal.text(self.document)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html.html(self.document)


def _said(seconds: float) -> str:
    return human_seconds(seconds) if seconds < inf else "never"


def runs(
    plans: Mapping[Key, Mapping[str, Any]],
    *,
    seeds: Iterable[int],
    **common: Any,
) -> dict[Key, tuple[Outcome, ...]]:
    """The outcomes of `[sharing]` tables with what is `common` to them; `network` is the changes of
    the hosts' network. A worker's step is an example: 100 ms for a model of 4 MB. The learning
    tasks are what the project ships; their rates are examples that are stable."""
    drawn = list(seeds)
    return {
        key: tuple(_run({**common, **plan}, seed) for seed in drawn) for key, plan in plans.items()
    }


def _run(table: dict[str, Any], seed: int) -> Outcome:
    network = {f"network.{key}": value for key, value in table.pop("network", {}).items()}
    document = {
        "name": "study",
        "topology": _TOPOLOGY,
        "change": network,
        "sharing": {**_USUAL, **table, "seed": seed},
    }
    scenario = sharing_of(described(document))
    return answer(set_up(scenario, brief=True))
