"""Errors of predictions that measured runs show, and the features by which runs are alike.

`topologies/validated/*.toml`, written by `sim validate TABLES --spread FILE`, keeps the errors of
each table of measured runs by campaign; packaged files and the user's own count alike.
"""

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from math import sqrt
from statistics import median
from typing import Annotated, Literal

from sim.config import catalog
from sim.config.dataclass import dataclass
from sim.config.reads import remembered
from sim.config.schema import Signed
from sim.config.units import Ge, Gt
from sim.model.kinds import experts_of
from sim.model.model import Model
from sim.parallel.job import Job
from sim.uncertainty import random_effects
from sim.uncertainty.intervals import LEVEL, ErrorLaw, Interval, Kernels, interval
from sim.uncertainty.random_effects import RandomEffects

Work = Literal["dense", "experts", "adapters", "other", "recorded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One software stack on one cluster in one precision, with one kind of `work`: training a dense
    transformer, a mixture of experts, adapters only (LoRA) or another model, or a recording.
    """

    stack: str
    device: str
    generation: str
    topology: str
    precision: str
    work: Work

    @classmethod
    def of(cls, job: Job, topology: str) -> "Campaign":
        """Return the campaign of a job on the cluster named `topology`."""
        return cls(
            stack=job.stack.name,
            device=job.device.name,
            generation=job.device.generation,
            topology=topology,
            precision=job.plan.precision,
            work="adapters" if job.plan.lora is not None else work_of(job.model),
        )

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The groups that contain this campaign, from wide to narrow; the last is itself."""
        return (
            self.work,
            (self.work, self.stack),
            (self.work, self.stack, self.generation),
            self,
        )


def work_of(model: Model | None) -> Work:
    """Return the kind of work of training all weights (None: only the model's times are known)."""
    if model is None or not model.divided:  # no transformer
        return "other"
    return "experts" if experts_of(model) else "dense"


FOLDER = "topologies/validated"
_ROWS_OF_USUAL = 2.0  # the usual scale counts as much as so many rows of a campaign: assumed
_FEW = 3  # at most so many rows are too few to show a scale
_UNKNOWN = 0.1  # the usual scale if nothing at all was measured: assumed
# Variance of the estimated location of n errors of scale s by Student's t with nu degrees of
# freedom: (nu + 3) / (nu + 1) s^2 / n (Lange, Little and Taylor 1989, section 4), nu = 4.
_OF_LOCATION = 1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread(Campaign):
    """Errors of a table's measured runs of one campaign, as in `topologies/validated`.

    `location` and `scale` describe log(measured / predicted) by Student's t. `apart` is the scale
    of the errors without the part that layouts of one job share, from `layouts` rows.
    """

    table: str
    rows: Annotated[int, Gt(0)]
    location: Annotated[float, Signed()]
    scale: Annotated[float, Ge(0)]
    layouts: Annotated[int, Ge(0)] = 0
    apart: Annotated[float, Ge(0)] = 0.0

    @property
    def campaign(self) -> Campaign:
        return Campaign(**{name: getattr(self, name) for name in Campaign.__dataclass_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A campaign's runs over all tables: how many, and their location and scale."""

    campaign: Campaign
    rows: int
    location: Annotated[float, Signed()]
    scale: float


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The errors of all validated runs, and what they imply for any job."""

    spreads: tuple[Spread, ...]

    def replaced(self, spreads: Sequence[Spread], *, tables: Container[str]) -> "Evidence":
        """Return the evidence with `spreads` in place of all spreads from `tables`."""
        others = (spread for spread in self.spreads if spread.table not in tables)
        return Evidence(spreads=(*others, *spreads))

    def interval(
        self,
        step: float,
        campaign: Campaign,
        *,
        kernels: Kernels | None = None,
        level: float = LEVEL,
    ) -> Interval:
        """Return the interval of a predicted step time (s)."""
        return interval(step, self.errors(campaign), kernels, level)

    def errors(self, campaign: Campaign) -> ErrorLaw:
        """Return the law of errors that validated runs imply for a job of this campaign."""
        location, unsure = self._effects.expected(campaign.groups)
        seen = self._seen.get(campaign)
        noise = self._within(seen.scale, seen.rows) if seen else self._usual**2
        return ErrorLaw(
            bias=location,
            scale=sqrt(unsure + noise),
            apart=self._apart(campaign),
            basis=self._basis(campaign),
            seen=seen.location if seen else None,
        )

    @cached_property
    def _seen(self) -> dict[Campaign, _Seen]:
        named = sorted(self._spreads_of.items(), key=lambda entry: repr(entry[0]))
        return {campaign: _together(campaign, spreads) for campaign, spreads in named}

    @cached_property
    def _spreads_of(self) -> Mapping[Campaign, Sequence[Spread]]:
        found: defaultdict[Campaign, list[Spread]] = defaultdict(list)
        for spread in self.spreads:
            found[spread.campaign].append(spread)
        return found

    @cached_property
    def _effects(self) -> RandomEffects:
        seen = self._seen.values()
        return random_effects.fit(
            [row.location for row in seen],
            [_OF_LOCATION * self._within(row.scale, row.rows) / row.rows for row in seen],
            [row.campaign.groups for row in seen],
        )

    @cached_property
    def _usual(self) -> float:
        """The median scale of campaigns with more than a few rows."""
        return _median(row.scale for row in self._seen.values() if row.rows > _FEW)

    @cached_property
    def _usually_apart(self) -> float:
        return _median(spread.apart for spread in self.spreads if spread.layouts > _FEW)

    def _within(self, scale: float, rows: int) -> float:
        """The square of a campaign's scale, shrunk towards the usual scale if rows are few."""
        return _shrunk(scale, rows - 1, self._usual)

    def _apart(self, campaign: Campaign) -> float:
        """Return the scale of the errors that two layouts of one job do not share."""
        spreads = self._spreads_of.get(campaign, ())
        rows = sum(spread.layouts for spread in spreads)
        square = sum(spread.layouts * spread.apart**2 for spread in spreads) / max(rows, 1)
        return sqrt(_shrunk(sqrt(square), rows, self._usually_apart))

    def _basis(self, campaign: Campaign) -> str:
        """The measured runs behind a law of errors, and the job's unmeasured feature if any."""
        seen = self._seen.get(campaign)
        if seen:
            return f"{_runs(seen.rows)} of {campaign.stack} on {campaign.device}"
        stack = [row for row in self._seen.values() if row.campaign.stack == campaign.stack]
        whole = _runs(self._rows(self._seen.values()))
        if not stack:
            alike = any(row.campaign.work == campaign.work for row in self._seen.values())
            return f"{whole} (none {f'of {campaign.stack}' if alike else _WORDS[campaign.work]})"
        unlike = _unlike(campaign, [row.campaign for row in stack])
        return f"{whole} ({self._rows(stack):,} of {campaign.stack}, none {unlike})"

    @staticmethod
    def _rows(seen: Iterable[_Seen]) -> int:
        return sum(row.rows for row in seen)


def _together(campaign: Campaign, spreads: Sequence[Spread]) -> _Seen:
    """Return a campaign's runs over all of its tables; tables that disagree widen the scale."""
    rows = sum(spread.rows for spread in spreads)
    location = sum(spread.rows * spread.location for spread in spreads) / rows
    square = sum(
        (spread.rows - 1) * spread.scale**2 + spread.rows * (spread.location - location) ** 2
        for spread in spreads
    )
    scale = sqrt(square / max(rows - 1, 1))
    return _Seen(campaign=campaign, rows=rows, location=location, scale=scale)


def _shrunk(scale: float, freedom: int, usual: float) -> float:
    return (freedom * scale**2 + _ROWS_OF_USUAL * usual**2) / (freedom + _ROWS_OF_USUAL)


def _median(scales: Iterable[float]) -> float:
    found = list(scales)
    return median(found) if found else _UNKNOWN


def _runs(rows: int) -> str:
    return f"{rows:,} measured run{'s' * (rows > 1)}"


_WORDS: Mapping[Work, str] = {
    "dense": "of dense models",
    "experts": "with experts",
    "adapters": "of adapters",
    "other": "of models of this kind",
    "recorded": "of recordings",
}


def _unlike(campaign: Campaign, others: Sequence[Campaign]) -> str:
    """Return the widest difference between a campaign and all `others`, in words."""
    for key, words in (
        ("work", _WORDS[campaign.work]),
        ("device", f"on {campaign.device}"),
        ("precision", f"in {campaign.precision}"),
    ):
        others = [other for other in others if getattr(other, key) == getattr(campaign, key)]
        if not others:
            return words
    return f"on {campaign.topology}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The content of a file in `topologies/validated`."""

    spreads: tuple[Spread, ...] = ()


@remembered(1)
def evidence() -> Evidence:
    """All validated runs: the packaged runs and the user's own."""
    files = [catalog.load(FOLDER, name, _File) for name in catalog.names(FOLDER)]
    return Evidence(spreads=tuple(spread for file in files for spread in file.spreads))
