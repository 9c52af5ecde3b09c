"""`sim.networks`: compare several clusters under a mix of jobs.

A job's weight w_j is its share of the devices' hours on the first cluster. Job j has an expected
step of t_jk seconds on cluster k, or t'_jk with the failure. For the work of an hour on the first
cluster, cluster k needs h_k = sum_j w_j t_jk / t_j1 hours. With the failure it needs sum_j w_j
t'_jk / t_j1 hours. Let a step of job j have n_j tokens per GPU, and let cluster k cost p_k dollars
per GPU and hour. Then a dollar of rent buys 3600 (sum_j w_j n_j / t_j1) / (h_k p_k) tokens. With
the network's bill, an hour of a GPU costs p_k + bill_k / (GPUs_k x hours of `price.network_years`).

The errors of the steps determine how certain the order of clusters is. Steps of one job that rest
on the same measured runs share most of their errors, and shared errors cancel
(`sim.uncertainty.intervals.faster`). Other errors are taken as independent. Where connections are
hashed to links, a step is the mean over several seeds of the hash. The spread over seeds is a
further error, because a real cluster has only one of these hashes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from math import exp, isclose, log, sqrt
from statistics import fmean, pstdev
from typing import Any

from sim import kind, questions
from sim.config import limit
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import HOUR
from sim.hardware.cluster.bill import Bill
from sim.results.answer import Answer, Inputs
from sim.results.formatting import several
from sim.results.likely import Pace
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import Settings, settings_of
from sim.uncertainty import student
from sim.uncertainty.intervals import LEVEL
from sim.uncertainty.order import faster, longer

SEEDS = 5  # a step is the mean over so many hashes of connections to links
_GRAMMAR = "write NAME, or 'NAME: KEY=VALUE; KEY=VALUE'"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """A job's step on a cluster. The simulated step takes `seconds`. A measured step should take
    `expected` seconds, within `low` to `high`; with the failure, it should take `failed` seconds. A
    step has `tokens`; a device draws `watts` (W) on average.

    `apart` is the scale of the error that layouts of a job do not share; `basis` names the measured
    runs behind `expected`. `spread` is the standard deviation over hashes of connections, as a
    share of the step (0 without hashes).
    """

    job: str
    gpus: int
    seconds: float
    expected: float
    low: float
    high: float
    tokens: float
    fits: bool | None
    watts: float | None
    failed: float | None = None
    apart: float | None = None
    basis: str = ""
    spread: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A cluster under the mix of jobs. Unknown values are None.

    `hours`, with the interval `low` to `high`, are needed for the work of an hour on the first
    cluster. `sound` and `failed` are the hours without and with the failure. Tokens per dollar
    count the rent, or the rent and the network's price, written off over years. `watts` is drawn by
    a device and its share of a host. `sure` is the probability that the mix takes longer here than
    on the best cluster, if both are measured. `longer` bounds the share by which the mix takes
    longer, at the level of intervals. `spread` is the standard deviation of the hours over hashes
    of connections, as a share of the hours. `bill` counts switches, cables and transceivers for all
    of the cluster's GPUs; `dollars` is their price.
    """

    name: str
    gpus: int
    hours: float
    low: float
    high: float
    sound: float
    failed: float | None
    tokens_per_dollar: float | None
    tokens_per_dollar_with_network: float | None
    watts: float | None
    fits: bool | None
    sure: float | None
    bill: Bill | None
    dollars: float | None
    steps: tuple[JobStep, ...]
    longer: tuple[float, float] | None = None
    spread: float = 0.0

    @property
    def slowdown(self) -> float | None:
        """The hours with the failure over the hours without it."""
        return None if self.failed is None else self.failed / self.sound


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks(Answer):
    """Clusters side by side under jobs of `weights`. `failure` holds the settings that make the
    failure, `failing` is the share of the time that it lasts. `inputs` has a key "cluster, job" for
    each pair."""

    view = "sim.interface.views.networks"
    picture = "sim.interface.plots.networks"
    derived = ("best",)
    frame_rows = "rows"
    frame_index = ("name",)

    networks: tuple[Network, ...]
    weights: dict[str, float]
    inputs: dict[str, Inputs]
    failure: dict[str, Any] = field(default_factory=dict)
    failing: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The cluster that takes the fewest hours. Clusters on which all jobs fit come before
        others."""
        fit = [network for network in self.networks if network.fits is not False]
        return min(fit or self.networks, key=lambda network: network.hours).name

    @property
    def fits(self) -> bool | None:
        """Whether all jobs fit on at least one cluster; None where it is unknown."""
        found = [network.fits for network in self.networks]
        return True if True in found else None if None in found else False

    @property
    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each cluster."""
        for network in self.networks:
            row = {key: getattr(network, key) for key in _COLUMNS}
            bill = network.bill or Bill()
            known = {"switches": sum(bill.switches), "cables": bill.cables,
                     "transceivers": bill.transceivers}  # fmt: skip
            row |= known if network.bill else dict.fromkeys(known)
            yield row | {f"step_time.{step.job}": step.seconds for step in network.steps}


_COLUMNS = ("name", "gpus", "hours", "low", "high", "failed", "slowdown", "tokens_per_dollar",
            "tokens_per_dollar_with_network", "watts", "fits", "sure", "spread",
            "dollars")  # fmt: skip


def networks(
    topologies: Sequence[str],
    jobs: Mapping[str, float] | Sequence[str],
    *,
    failure: Settings = (),
    failing: float = 0.0,
    seeds: int = SEEDS,
    settings: Settings = (),
    price: str | None = None,
    told: Callable[[str], object] | None = None,
) -> Networks:
    """Compare clusters under a mix of jobs, which maps jobs to weights; a list gives equal weights.

    A cluster is a topology's name, or `NAME: KEY=VALUE; KEY=VALUE` with values changed; `settings`
    change values of all clusters. `failure` changes values for a second step of each job. If a
    cluster has the failure for a share `failing` of the time, as with a link that flaps, `hours`
    are the weighted mean of both states. Where a network hashes connections, steps are means over
    `seeds` hashes. Before steps are played, `told` is called with a line about their number.
    Raises `InputError`.

    >>> both = networks(["dgx-a100-hdr", "dgx-a100-hdr: network.routing=ecmp"], ["megatron-1.7b"])
    >>> both.best, [round(network.hours, 2) for network in both.networks]
    ('dgx-a100-hdr', [1.0, 1.01])
    """
    weights = dict(jobs) if isinstance(jobs, Mapping) else dict.fromkeys(jobs, 1.0)
    if not weights or not topologies:
        raise InputError("network", "no clusters or no jobs", "give one or more of each")
    if min(weights.values()) <= 0.0:
        raise InputError("network", "a weight is not positive", "leave that job out")
    total = sum(weights.values())
    shares = {job: weight / total for job, weight in weights.items()}
    if failing and not failure:
        raise InputError("network, failing", "no failure is given", "give --failure KEY=VALUE")
    if not 0.0 <= failing <= 1.0:
        fault = f"{failing:g} is not a share of the time"
        raise InputError("network, failing", fault, "give a share from 0 to 1")
    if seeds < 1:
        raise InputError("network, seeds", f"{seeds} is not a number of hashes", "give 1 or more")
    changes, failed = settings_of(settings, price), settings_of(failure)
    pairs = [(name, job) for name in dict.fromkeys(topologies) for job in shares]
    asked = [_asked(name, job, changes, failed, seeds) for name, job in pairs]
    runs = {repr(run): run for states in asked for state in states for run in state}
    planned = _planned(len(dict(pairs)), len(shares), failed, asked, len(runs))
    limit.refuse_long("network", planned, _effort(asked))
    if told is not None and len(runs) > 1:
        told(planned)
    played = (questions.pace(kind.set_up(run, brief=True)) for run in runs.values())
    paces = dict(zip(runs, counted(played, total=len(runs), unit="step"), strict=True))
    given: dict[str, list[tuple[JobStep, Pace]]] = {}
    for (name, job), states in zip(pairs, asked, strict=True):
        step = _step(job, *([paces[repr(run)] for run in state] for state in states))
        given.setdefault(name, []).append(step)
    found = _named(given)
    first = [step for step, _ in next(iter(found.values()))]
    parts = list(shares.values())
    rows = [_network(name, steps, first, parts, failing) for name, steps in found.items()]
    inputs = {
        f"{name}, {step.job}": pace.inputs for name, steps in found.items() for step, pace in steps
    }
    answer = Networks(
        networks=tuple(rows),
        weights=shares,
        inputs=inputs,
        failure=dict(failed),
        failing=failing,
        notes=tuple(
            f"{name}: {odd}" for name, steps in found.items() for odd in steps[0][1].topology.odd
        ),
    )
    return _with_chances(answer, list(shares.values()))


def _asked(
    name: str, job: str, settings: Mapping[str, Any], failure: Mapping[str, Any], seeds: int
) -> list[list[BaseScenario]]:
    """Return the scenarios of a job on a cluster by state: without the failure, then with it if
    there is one. Each state has a scenario for every hash."""
    topology, _, changes = (part.strip() for part in name.partition(":"))
    if not topology or "=" in topology:
        raise InputError(f"network {name!r}", "names no topology", _GRAMMAR)
    overrides = settings_of([part.strip() for part in changes.split(";") if part.strip()])
    states = [{"topology": topology, **settings, **overrides}]
    if failure:
        states.append({**states[0], **failure})
    scenarios = [kind.load(job, state) for state in states]
    questions.refuse_without("pace", scenarios[0])
    return [list(islice(questions.seeds(each) or (each,), seeds)) for each in scenarios]


def _effort(asked: Iterable[Iterable[Sequence[BaseScenario]]]) -> float:
    """Return the seconds of one core that all steps take. Steps of one state differ only in the
    hash, so only the first step is estimated."""
    hashes = {repr(state): state for states in asked for state in states}.values()
    return sum(len(each) * questions.effort(kind.set_up(each[0], brief=True)) for each in hashes)


def _planned(
    clusters: int, jobs: int, failure: Mapping[str, Any], asked: Sequence[Any], runs: int
) -> str:
    """Say how many steps are to be played, and why.

    >>> _planned(2, 1, {"network.down": [[0, 0]]}, [[[1], [2]], [[3, 4], [5, 6]]], 6)
    '6 steps to play: 2 networks, 1 job, 2 states, up to 2 hashes'
    """
    hashes = max(len(state) for states in asked for state in states)
    parts = [several(clusters, "network"), several(jobs, "job")]
    parts += ["2 states"] if failure else []
    parts += [f"up to {hashes} hashes"] if hashes > 1 else []
    return f"{several(runs, 'step')} to play: {', '.join(parts)}"


def _named(
    found: Mapping[str, list[tuple[JobStep, Pace]]],
) -> dict[str, list[tuple[JobStep, Pace]]]:
    """Return the steps by the topologies' names and changed values. If these names are not unique,
    the names as given are used."""
    names = []
    for given, steps in found.items():
        _, colon, changes = given.partition(":")
        names.append(steps[0][1].topology.name + colon + changes)
    told_apart = len(set(names)) == len(names)
    return dict(zip(names if told_apart else found, found.values(), strict=True))


def _step(
    job: str, paces: Sequence[Pace], failed: Sequence[Pace] | None = None
) -> tuple[JobStep, Pace]:
    """Return a job's step on a cluster, without and with the failure, as the mean over hashes."""
    every = [pace.seconds for pace in paces]
    pace = replace(paces[0], seconds=fmean(every))
    sure = pace.sure
    bounds = sure.of(pace.seconds) if sure else dict.fromkeys(_RATIOS, pace.seconds)
    slow = fmean(each.seconds for each in failed) / pace.seconds if failed else None
    return JobStep(
        job=job,
        gpus=pace.topology.gpus,
        seconds=pace.seconds,
        tokens=pace.tokens,
        fits=pace.fits,
        watts=pace.watts,
        failed=slow * bounds["expected"] if slow else None,
        apart=sure.apart if sure else None,
        basis=sure.basis if sure else "",
        spread=pstdev(every) / fmean(every),
        **bounds,
    ), pace


_RATIOS = ("low", "expected", "high")


def _network(
    name: str,
    steps: Sequence[tuple[JobStep, Pace]],
    first: Sequence[JobStep],
    shares: Sequence[float],
    failing: float,
) -> Network:
    jobs, topology = [step for step, _ in steps], steps[0][1].topology
    scales = [share / step.expected for share, step in zip(shares, first, strict=True)]

    def mixed(values: Iterable[float | None]) -> float | None:
        known = list(values)
        if any(value is None for value in known):
            return None
        return sum(scale * (value or 0.0) for scale, value in zip(scales, known, strict=True))

    sound, failed = mixed(step.expected for step in jobs) or 0.0, mixed(s.failed for s in jobs)
    hours = sound + failing * ((failed or sound) - sound)
    reach = _reach(jobs, scales, sound)
    price, whole = topology.price, topology.with_gpus(topology.size)
    tokens = mixed(step.tokens / step.gpus for step in jobs) or 0.0
    bill = whole.network.bill(whole.nodes) if whole.network else Bill()
    network = bill.hourly(price) if bill else None
    drawn = mixed(None if s.watts is None else s.watts * s.expected for s in jobs)
    host = price.host if price and price.host is not None else None

    def bought(hourly: float | None) -> float | None:
        return tokens * HOUR / (hours * hourly) if hourly else None

    return Network(
        name=name,
        gpus=whole.gpus,
        hours=hours,
        low=hours * exp(-reach),
        high=hours * exp(reach),
        sound=sound,
        failed=failed,
        tokens_per_dollar=bought(price.hour if price else None),
        tokens_per_dollar_with_network=bought(
            None if price is None or network is None else price.hour + network / whole.gpus
        ),
        watts=None if drawn is None or host is None else drawn / sound + host,
        fits=_all([step.fits for step in jobs]),
        sure=None,
        bill=bill,
        dollars=bill.dollars(price) if bill else None,
        steps=tuple(jobs),
        spread=sqrt(
            sum(
                (s * step.expected * step.spread) ** 2 for s, step in zip(scales, jobs, strict=True)
            )
        )
        / sound,
    )


def _all(fits: Sequence[bool | None]) -> bool | None:
    return False if False in fits else None if None in fits else True


def _reach(steps: Sequence[JobStep], scales: Sequence[float], hours: float) -> float:
    """Return half the width of the interval of log(hours), for independent errors of the jobs."""
    parts = (
        (scale * step.expected / hours * log(step.high / step.low) / 2.0) ** 2
        for step, scale in zip(steps, scales, strict=True)
    )
    return sqrt(sum(parts))


def _with_chances(answer: Networks, shares: Sequence[float]) -> Networks:
    """Return the answer with each cluster's probability to take longer than the best cluster."""
    best = next(network for network in answer.networks if network.name == answer.best)
    rows = (n if n is best else _against(n, best, shares) for n in answer.networks)
    return replace(answer, networks=tuple(rows))


def _against(other: Network, best: Network, shares: Sequence[float]) -> Network:
    """Return a network with the probability that its mix takes longer than on the best network, and
    by how much."""
    pairs = zip(other.steps, best.steps, strict=True)
    same = all(isclose(a.seconds, b.seconds) and a.basis == b.basis for a, b in pairs)
    if same and not other.spread + best.spread:
        return replace(other, sure=0.5, longer=(0.0, 0.0))  # equal steps have equal errors
    apart = _apart(other, best, shares)
    if not apart:
        return other
    hours = best.hours, other.hours
    return replace(other, sure=faster(*hours, apart), longer=longer(*hours, apart))


def _apart(other: Network, best: Network, shares: Sequence[float]) -> float:
    """Return the scale of the errors of two mixes, without the errors that both share."""
    pairs = list(zip(other.steps, best.steps, strict=True))
    hashes = (other.spread**2 + best.spread**2) / 2.0
    if all(a.apart and a.basis == b.basis for a, b in pairs):
        weights = [share * a.seconds for share, (a, _) in zip(shares, pairs, strict=True)]
        square = sum((w * (a.apart or 0.0)) ** 2 for w, (a, _) in zip(weights, pairs, strict=True))
        return sqrt(square / sum(weights) ** 2 + hashes)
    reach = sqrt(2.0) * student.quantile((1.0 + LEVEL) / 2.0)
    spread = (log(network.high / network.low) / 2.0 / reach for network in (other, best))
    return sqrt(sum(each**2 for each in spread) + hashes)
