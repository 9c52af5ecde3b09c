"""How long do steps take while a set of jobs runs? Each set is played once, until it is steady."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import field, replace
from statistics import fmean, pstdev
from typing import Any

from sim.config.dataclass import dataclass
from sim.hardware.cluster.link_names import link_name, links_named
from sim.jobs.multi_job.folding import Together, meeting, together
from sim.jobs.multi_job.mean_traffic import mean_paces
from sim.jobs.multi_job.placed import STORES
from sim.jobs.multi_job.repeated import carried, repeat
from sim.jobs.multi_job.setup import Placed, shared_by

_PLAYED = 8  # the most jobs played together; larger companies have the mean over all phases
_PHASES = 16  # phases of a step that are tried as offsets


@dataclass(frozen=True, slots=True)
class Pace:
    """A job's step times beside other jobs: mean, standard deviation, shortest and longest (s)."""

    mean: float
    spread: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Pace":
        """The pace of steps of these seconds; differences by rounding do not count."""
        spread = pstdev(seconds)
        mean = fmean(seconds)
        return cls(mean, spread if spread > 1e-9 * mean else 0.0, min(seconds), max(seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLink:
    """A link of `capacity` (B/s), and the mean B/s that each job puts on it, by the job's name."""

    name: str
    capacity: float
    rates: dict[str, float]

    @property
    def busy(self) -> float:
        """The share of the link's capacity that jobs use."""
        return sum(self.rates.values()) / self.capacity

    @property
    def rank(self) -> tuple[float, str]:
        """The key that sorts links, the busiest first; links that are equally busy go by name."""
        return -float(f"{self.busy:.9g}"), self.name


@dataclass(frozen=True, slots=True)
class Company:
    """Jobs that meet on links, at their offsets (s): their paces, the links on which they meet, and
    when each played step began and ended. If the company was not `played`, paces are means over all
    phases. If offsets were searched, they reduce the sum of slowdowns by `gained`."""

    paces: tuple[Pace, ...]
    offsets: tuple[float, ...]
    links: tuple[SharedLink, ...] = ()
    steps: tuple[tuple[tuple[float, float], ...], ...] = ()
    gained: float = 0.0
    played: bool = True

    def in_order(self, places: Sequence[int]) -> "Company":
        """This company in another order: its n-th job moves to position `places[n]`."""
        numbers = sorted(range(len(places)), key=places.__getitem__)
        return replace(
            self,
            paces=tuple(self.paces[n] for n in numbers),
            offsets=tuple(self.offsets[n] for n in numbers),
            steps=tuple(self.steps[n] for n in numbers if self.steps),
        )


@dataclass(eq=False)
class Paces:
    """Paces of sets of jobs. A set is played for `steady` steps a job, once for all sets like it.
    With `best` the best offsets are searched. Some paces are means over all phases: paces beside
    checkpoints, in large companies, and of jobs that arrive over time (`by_and_by`) or write
    checkpoints."""

    steady: int
    best: bool = False
    by_and_by: bool = False
    _known: dict[Hashable, tuple[Sequence[Placed], Company]] = field(default_factory=dict)

    def groups(self, jobs: Sequence[Placed]) -> list[tuple[int, ...]]:
        """The numbers of the jobs in groups that meet, directly or through other jobs."""
        return meeting([job.guest for job in jobs])

    def company(
        self, jobs: Sequence[Placed], offsets: Sequence[float], *, by_means: bool = False
    ) -> Company:
        """The company of jobs that meet; their next steps begin in `offsets` seconds. `by_means`
        takes means over all phases even where the jobs could be played."""
        if len(jobs) == 1:
            seconds = jobs[0].seconds
            return Company((Pace(seconds, 0.0, seconds, seconds),), tuple(offsets))
        unknown = by_means or self.by_and_by or any(job.saves for job in jobs)
        offsets = [0.0] * len(jobs) if unknown else offsets
        keys = [self._key(job, offset) for job, offset in zip(jobs, offsets, strict=True)]
        order = sorted(range(len(jobs)), key=lambda number: keys[number])
        ordered = [jobs[number] for number in order]
        by_means = (
            by_means
            or len(jobs) > _PLAYED
            or (unknown and not self.best)
            or any(job.doing or job.program is None for job in jobs)
        )
        key = by_means, _where(ordered), tuple(keys[number] for number in order)
        if key not in self._known:
            played = [offsets[n] for n in order]
            company = _by_means(ordered) if by_means else self._played(ordered, played)
            self._known[key] = ordered, company
        return _of(ordered, *self._known[key]).in_order(order)

    def _key(self, job: Placed, offset: float) -> Any:
        """A key that is equal for jobs that behave alike, even on different nodes."""
        pods = Counter(map(job.place.cluster.pod_of, job.place.nodes))
        slow = tuple(job.machine.slowdown.items())
        moment = 0.0 if self.best else round(offset, 6)
        kind = job.template.number, job.doing
        return *kind, tuple(pods.values()), job.place.slots, slow, moment

    def _played(self, jobs: Sequence[Placed], offsets: Sequence[float]) -> Company:
        links = together([job.guest for job in jobs])
        given = self._company(jobs, links, offsets)
        if not self.best:
            return given
        best = given
        for number, job in list(enumerate(jobs))[1:]:  # each in turn tries phases of its step
            for phase in range(_PHASES):
                tried = list(best.offsets)
                tried[number] = job.seconds * phase / _PHASES
                other = self._company(jobs, links, tried)
                best = min(best, other, key=lambda company: _slowdown(jobs, company))
        return replace(best, gained=_slowdown(jobs, given) - _slowdown(jobs, best))

    def _company(
        self, jobs: Sequence[Placed], links: Together, offsets: Sequence[float]
    ) -> Company:
        """Play jobs at their offsets. The first third of the steps does not count, as the jobs'
        step times are not yet steady there."""
        played = repeat(links, offsets, self.steady)
        paces = [Pace.of(steps.seconds[len(steps.seconds) // 3 :]) for steps in played]
        spans = (
            tuple(zip([steps.begin, *steps.ends], steps.ends, strict=False)) for steps in played
        )
        met = tuple(_met(jobs, links, paces))
        return Company(tuple(paces), tuple(offsets), met, tuple(spans))


def _where(jobs: Sequence[Placed]) -> Hashable:
    """A key: which of the jobs' nodes share pods and stores. If the network has no hierarchy, or a
    link is degraded, the key is the nodes themselves."""
    cluster = jobs[0].place.cluster
    nodes = [node for job in jobs for node in job.place.nodes]
    if not cluster.hierarchical or cluster.degraded:
        return tuple(nodes)
    return shared_by(cluster, nodes)


def _of(jobs: Sequence[Placed], like: Sequence[Placed], company: Company) -> Company:
    """The `company` of the jobs `like`, with the names and links of `jobs`, which are placed
    alike."""
    places = [[node for job in group for node in job.place.nodes] for group in (like, jobs)]
    nodes = dict(zip(*places, strict=True))
    cluster = jobs[0].place.cluster
    pods, stores = (
        {of(node): of(other) for node, other in nodes.items()}
        for of in (cluster.pod_of, cluster.store_of)
    )
    names = {job.name: other.name for job, other in zip(like, jobs, strict=True)}

    def moved(name: str) -> str:
        if places[0] == places[1]:
            return name
        match links_named(name)[0]:
            case (kind, node, number):
                return link_name((kind, nodes[node], number))
            case (kind, place):
                moves = pods if "pod" in kind else stores if kind in STORES else nodes
                return link_name((kind, moves[place]))

    links = (
        replace(link, name=moved(link.name), rates={names[n]: r for n, r in link.rates.items()})
        for link in company.links
    )
    return replace(company, links=tuple(sorted(links, key=lambda link: link.rank)))


def _by_means(jobs: Sequence[Placed]) -> Company:
    """The company of jobs whose paces are means over all phases."""
    paces, rates = mean_paces([job.guest for job in jobs], [job.seconds for job in jobs])
    cluster = jobs[0].place.cluster
    links = [
        SharedLink(
            name=link_name(link),
            capacity=cluster.capacity(link),
            rates={jobs[n].name: rate for n, rate in by.items() if rate > 0.0},
        )
        for link, by in rates.items()
    ]
    return Company(
        tuple(Pace(mean, 0.0, mean, mean) for mean in paces),
        (0.0,) * len(jobs),
        tuple(sorted(links, key=lambda link: link.rank)),
        played=False,
    )


def _slowdown(jobs: Sequence[Placed], company: Company) -> float:
    """The sum of the jobs' slowdowns."""
    return sum(pace.mean / job.seconds for pace, job in zip(company.paces, jobs, strict=True))


def _met(jobs: Sequence[Placed], links: Together, paces: Sequence[Pace]) -> list[SharedLink]:
    """The links on which several jobs put bytes, the busiest first."""
    rates = [
        {link: size / pace.mean for link, size in carried(program).items()}
        for program, pace in zip(links.programs, paces, strict=True)
    ]
    found = [
        SharedLink(
            name=links.names[number],
            capacity=links.capacity[number],
            rates={
                job.name: rate[number]
                for job, rate in zip(jobs, rates, strict=True)
                if rate.get(number, 0.0) > 0.0
            },
        )
        for number in range(links.shared)
    ]
    return sorted((link for link in found if len(link.rates) > 1), key=lambda link: link.rank)
