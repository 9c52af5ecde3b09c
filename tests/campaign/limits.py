"""Laws of limits and of scale: what an answer becomes where something is endless, nothing or twice
as much, and what changes nothing at all."""

import random
from typing import Any

from sim.analysis.samples.rank_slowdowns import RankPlacement
from sim.analysis.samples.samples import samples
from sim.config.errors import InputError
from sim.engine.accounts import accounts
from sim.engine.columns.contention import TOLERANCE
from sim.engine.play import play
from sim.kind import load
from sim.model.counts import parameters
from sim.program.causes import COMPUTE, RECOMPUTE
from sim.scenario.setup import from_scenario
from tests.campaign.job import SAME, Job, not_longer, same
from tests.campaign.jobs import Document
from tests.campaign.records import carried

_NEAR = 1e-4  # relative; of an endless resource to twice that
_GROWN, _ENDED = 1e-3, 1e-6  # relative; of a delay of 1e-9 that grew on the way, and of 1e-12
_ENDLESS = 1e16  # B/s
FREE = {
    "network.bandwidth": f"{_ENDLESS} B/s", "network.latency": "0 s",
    "node.bandwidth": f"{_ENDLESS} B/s", "node.latency": "0 s",
}  # fmt: skip
NO_ACTIVATIONS = {"plan.offload.activations": 0.0}


def _near(one: float, other: float, what: str, within: float = _NEAR) -> str:
    return "" if abs(one - other) <= within * abs(one) else f"{one!r}, {other!r} {what}"


def endless_network(job: Job, chance: random.Random) -> str:
    """Beyond some bandwidth there is no network: more of it changes nothing, and no link between
    nodes makes anybody wait."""
    one = job.result(FREE)
    two = job.result({**FREE, "network.bandwidth": f"{2 * _ENDLESS} B/s"})
    return _near(one.step_time, two.step_time, "with twice as much")


_STORE = {"kind": "parallel", "read": f"{_ENDLESS} B/s", "write": f"{_ENDLESS} B/s",
          "latency": "0 s"}  # fmt: skip
_LOADED = {"loader.read": "1 kB", "topology.storage": {**_STORE, "bandwidth": f"{_ENDLESS} B/s"}}


def _loaded(job: Job, settings: dict[str, Any], **ways: Any) -> float:
    """Seconds of a step with a loader; 0 where a pipeline has no step that could wait for it."""
    try:
        return job.time(_LOADED | settings, **ways)
    except InputError:
        return 0.0


def endless_loader(job: Job, chance: random.Random) -> str:
    """Samples that come at once make no step longer."""
    found = _loaded(job, {})
    return _near(job.time(), found, "with an endless loader", 1e-6) if found else ""


def waits_for_samples(job: Job, chance: random.Random) -> str:
    """A step that waits for its samples lasts as long as workers take to make them."""
    usual, plan = job.time(), from_scenario(load(job.write())).job.plan
    samples, workers = plan.global_batch / plan.data_parallel, chance.randint(1, 8)
    rate = samples / (3.0 * usual * workers)
    settings = {"loader.rate": rate, "loader.workers": workers, "loader.prefetch": 64}
    found = _loaded(job, settings)
    return _near(3.0 * usual, found, "while samples are made", 1e-6) if found else ""


def folded_loader(job: Job, chance: random.Random) -> str:
    """A loader that meets gradients on NICs and other nodes at their store."""
    nodes, read = chance.randint(0, 2), chance.choice((1e6, 1e8, 1e9))
    store = {"kind": "parallel", "read": "9 GB/s", "write": "9 GB/s", "nodes": nodes}
    settings = {"loader.read": f"{read} B", "topology.storage": store}
    one, other = (_loaded(job, settings, unfold=way) for way in (False, True))
    return same(one, other)


def alone(job: Job, chance: random.Random) -> str:
    """Workers with next to nothing to send take the time of a single one."""
    sharing = job.document["sharing"]
    if sharing["method"] not in ("all_reduce", "local_sgd") or "straggler" in sharing:
        return ""
    if {"site", "fragments", "compression"} & sharing.keys():
        return ""
    free = {
        "sharing.times": {"forward": "1 s", "backward": "2 s", "parameters": 1.0},
        "network.latency": "0 s",
    }
    period = sharing.get("period", 1)
    rounds = -(-sharing["steps"] // period)
    return _near(3.0 * rounds * period, job.time(free), "with nothing to send", 1e-3)


def no_jitter(job: Job, chance: random.Random) -> str:
    """Steps that hardly vary are the step.

    A slow replica is drawn as if its neighbours, with which it shares links, were as slow: the step
    is drawn between that of one slow rank and that of a whole slow stage, each to 1 %.
    """
    if not job.sampled:
        return ""
    cause = {"name": "kernels", "kind": "lognormal", "sigma": 1e-12}
    still = Job(job.kind, {**job.document, "jitter": {"seed": 1, "cause": [cause]}})
    steps, usual = samples(load(still.write()), 3), still.time()
    drawn, slow = float(steps.step_times[0]), job.document.get("straggler", [])
    if not slow:
        return _near(usual, drawn, "drawn", TOLERANCE if steps.contended else _NEAR)
    most = still.but({"straggler": [each for own in slow for each in _all_of_stage(job, own)]})
    inside = usual * (1.0 - TOLERANCE) <= drawn <= most.time() * (1.0 + TOLERANCE)
    return "" if inside else f"{drawn!r} drawn, {usual!r} played"


def _all_of_stage(job: Job, slow: Document) -> list[Document]:
    """A slow rank, and all ranks of its stage as slow."""
    setup = from_scenario(load(job.write()))
    stages = RankPlacement.of(setup.job.plan.mesh, setup.machine.topology).unit("stage")
    same = (stages == stages[slow["rank"]]).nonzero()[0].tolist()
    return [{**slow, "rank": rank} for rank in same]


def capacity_without_bound(job: Job, chance: random.Random) -> str:
    """With room for all tokens none is dropped, and model FLOPs are those without bound."""
    usual = job.result()
    blocks = usual.setup.job.model.blocks
    experts = {name: own["experts"] for name, own in blocks.items() if own.get("experts")}
    if not experts or usual.dropped:
        return ""
    roomy = job.result({f"model.blocks.{name}.capacity": float(n) for name, n in experts.items()})
    if roomy.dropped:
        return f"drops {roomy.dropped} of its tokens with room for all"
    return same(usual.mfu * usual.step_time, roomy.mfu * roomy.step_time)


def every_peak(job: Job, chance: random.Random) -> str:
    """The same FLOPs are of each peak that MFU is said of, and the usual peak is among them."""
    try:
        result = job.result({"plan.precision": chance.choice(("fp8", "bf16"))})
    except InputError:
        return ""  # the device lacks it
    device = result.setup.job.device
    rates = {name: share * device.peak_rate(name) for name, share in result.mfu_of_peaks.items()}
    if not {device.half, "bf16", "fp16"} & rates.keys():
        return f"MFU is of {list(rates)} only"
    return same(min(rates.values()), max(rates.values()))


def axes_of_one(job: Job, chance: random.Random) -> str:
    """An axis of length 1 is none: a plan that states it is the plan that does not."""
    plan = job.document["plan"]
    ones = {f"plan.{axis}": 1 for axis in ("tp", "pp", "cp", "ep") if axis not in plan}
    if "etp" not in plan and plan.get("tp", 1) == 1:
        ones["plan.etp"] = 1
    return same(job.time(), job.but(ones).time())


def order_of_tables(job: Job, chance: random.Random) -> str:
    """Keys and tables of a file stand in any order."""

    def mixed(table: Document) -> Document:
        keys = chance.sample(list(table), len(table))
        return {k: mixed(table[k]) if isinstance(table[k], dict) else table[k] for k in keys}

    return same(job.time(), Job(job.kind, mixed(job.document)).time())


def _computing(job: Job, settings: dict[str, Any] | None = None) -> float:
    """Seconds that a rank computes, the mean of all: what the slowest one does is not what another
    does in its place."""
    setup = from_scenario(load(job.write(), settings or {}))
    record = play(setup.program, setup.machine)
    spent = zip(record.roles, accounts(record), strict=True)
    return sum(role.ranks * (own.get(COMPUTE, 0.0) + own.get(RECOMPUTE, 0.0))
               for role, own in spent) / sum(role.ranks for role in record.roles)  # fmt: skip


def weak_scaling(job: Job, chance: random.Random) -> str:
    """Twice the replicas of twice the batch compute as long on boards that are alike.

    Of boards that differ the slowest holds its clock, the slower one of twice as many
    (`PowerDraw.clock`): products take clock(n) / clock(2n) of their time, whatever else a rank
    computes takes its own. So computing takes between once and so many times as long.

    What is divided among the replicas is not computed as long: where FSDP adds reduced gradients to
    a rank's shares (`Stack.shard_bytes`), these are half as large, and computing takes no longer.
    """
    plan, gpus = job.document["plan"], job.document["gpus"]
    if job.document.get("straggler"):
        return ""
    twice = job.but({"gpus": 2 * gpus, "plan.global_batch": 2 * plan["global_batch"]})
    own, precision = from_scenario(load(job.write())).job, plan["precision"]
    shares = plan.get("zero", 0) >= 2 and own.stack.shard_bytes(precision, later=True)
    alike = {"device.draw.spread": 0.0} if own.device.draw else {}
    one, two = (_computing(each, alike) for each in (job, twice))
    if shares:
        return "" if two <= one * (1.0 + SAME) else f"{two!r} on twice the GPUs, {one!r} on these"
    if said := same(one, two):
        return f"on twice the GPUs: {said}"
    held = [own.device.among(boards).held_clock(precision) for boards in (gpus, 2 * gpus)]
    one, two = (_computing(each) for each in (job, twice))
    inside = one * (1.0 - SAME) <= two <= one * held[0] / held[1] * (1.0 + SAME)
    return "" if inside else f"{two!r} on twice the boards, {one!r} on these"


def layers_add_up(job: Job, chance: random.Random) -> str:
    """Each layer more computes as long as the one before: two differences are one."""
    plan, change = job.document["plan"], job.document["change"]
    if job.document.get("straggler") or plan.get("offload") or plan.get("layers"):
        return ""
    base = change["model.layers"]
    pieces = plan.get("pp", 1) * plan.get("interleave", 1)
    if base % pieces:
        return ""
    found = [_computing(job, {"model.layers": base * n}) for n in (2, 4, 6)]
    return _near(found[1] - found[0], found[2] - found[1], "for as many layers again", 1e-3)


def _scaled(job: Job, path: tuple[str, ...], factor: float, unit: str) -> dict[str, Any]:
    """The setting of a resource of the job's machine or stack scaled; empty where it has none."""
    setup = job.result().setup
    value: Any = {"stack": setup.job.stack, "host": setup.machine.topology.host}[path[0]]
    for name in path[1:]:
        value = getattr(value, name, None)
    return {".".join(path): f"{factor * value!r} {unit}"} if value else {}


def cheaper(key: str, factor: float, unit: str) -> Any:
    """A law that a cheaper or faster thing of the host never makes a step longer."""

    def found(job: Job, chance: random.Random) -> str:
        changed = _scaled(job, tuple(key.split(".")), factor, unit)
        if not changed:
            return ""
        return not_longer(job.time(), job.time(changed), " ".join(changed))

    return found


def healthy_in_the_limit(job: Job, chance: random.Random) -> str:
    """As a rank's factor goes to 1, the step goes to that of sound ranks.

    Where nothing contends, no step is longer by more than the factor. Where transfers contend,
    equal ranks in step may be in a balance that is not stable: of two that share a link the later
    ends later still, so that a delay grows from microbatch to microbatch, by up to 2e5 in twelve of
    them. It grows in proportion to what it was: a thousandth of it has a hundredth of the effect at
    most, and in the end none.
    """
    healthy = Job(job.kind, {k: v for k, v in job.document.items() if k != "straggler"})
    rank = chance.randrange(job.document["gpus"])
    usual = healthy.result()

    def gap(more: float) -> float:
        slow = healthy.but({"straggler": [{"rank": rank, "factor": 1.0 + more}]})
        return abs(slow.time() - usual.step_time) / usual.step_time

    try:
        far, near = gap(1e-9), gap(1e-12)
    except InputError as error:
        return f"plays, and does not with rank {rank} all but sound: {error}"
    if usual.engine == "replay":
        return "" if far <= 2e-9 else f"{far:.1e} longer with rank {rank} all but sound"
    ends = far <= _GROWN and near <= min(max(far / 100, SAME), _ENDED)
    return "" if ends else f"rank {rank}, 1e-9 slow: off by {far:.1e}, 1e-12 slow: by {near:.1e}"


def endless_host(job: Job, chance: random.Random) -> str:
    """Activations that leave over endless links and come back are as if they had stayed, but for
    what the host launches."""
    offload = job.document["plan"].get("offload", {})
    if not offload.get("activations"):
        return ""
    rest = {key: value for key, value in offload.items() if key != "activations"}
    plan = {k: v for k, v in job.document["plan"].items() if k != "offload"}
    stays = Job(job.kind, {**job.document, "plan": plan | ({"offload": rest} if rest else {})})
    free = {
        "change.host.generation": 6,
        "change.host.devices_per_link": 1,
        "change.host.memory_bandwidth": f"{_ENDLESS} B/s",
    }
    away, here = job.but(free).result(), stays.but(free).result()
    return not_longer(away.step_time, here.step_time, "activations that stay")


def _on_host(job: Job, *, overlap: bool) -> Job:
    """The job with its parameters on the host and its optimizer on the device, of equal ranks: a
    slow rank has a link to itself that two usually share. Messages to other nodes, which pass a
    device's link with `gpudirect`, do not: copies alone are counted there."""
    own = {"parameters": 1.0, "overlap": overlap}
    kept = job.document["plan"].get("offload", {}).get("activations")
    return job.without("straggler").but({
        "plan.zero": 3, "plan.offload": own | ({"activations": kept} if kept else {}),
        "change.host.gpudirect": False,
    })  # fmt: skip


def updates_return(job: Job, chance: random.Random) -> str:
    """Of parameters on the host every shard that the device has updated goes back once a step."""
    setup = from_scenario(load(_on_host(job, overlap=True).but(NO_ACTIVATIONS).write()))
    sent = carried(play(setup.program, setup.machine, engine="clock", unfold=True))
    out = sum(size * links for size, links in sent["pcie-up"])
    weights = parameters(setup.job.model) * setup.job.stack.weight_bytes(setup.job.plan.precision)
    return _near(weights, out, "B go back to the host", 0.01)  # a vocabulary is padded


def copies_are_waited_for(job: Job, chance: random.Random) -> str:
    """Without overlap a step takes its kernels and its copies, one after the other."""
    setup = from_scenario(load(_on_host(job, overlap=False).write()))
    record = play(setup.program, setup.machine, engine="clock")
    links = record.program().links
    rates = {own.name.split()[0]: own.capacity for own in links if own.name.startswith("pcie")}
    sent = carried(record)
    copying = sum(max(sent[kind])[0] / rate for kind, rate in rates.items() if kind in sent)
    own = _on_host(job, overlap=False)
    return not_longer(own.time(), _computing(own) + copying, "kernels and copies alone")
