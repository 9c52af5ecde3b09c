"""Laws that every valid job obeys, tried on jobs drawn at random.

A law looks at a job, perhaps in several forms, and says what it finds against itself: nothing where
it holds.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, ClassVar

from sim import run
from sim.analysis.samples.samples import samples
from sim.analysis.search.evaluate import Candidate, Evaluator
from sim.analysis.search.mesh_layouts import MeshLayouts
from sim.analysis.search.space import Space
from sim.analysis.sweeps.sweep import sweep
from sim.config import limit
from sim.config.errors import InputError
from sim.config.readable import human_seconds
from sim.engine.columns.contention import TOLERANCE, InexactError
from sim.hardware.cluster import topology as topologies
from sim.interface.cli.files import DOES_NOT_FIT
from sim.kind import load
from sim.parallel.job import Known
from sim.scenario.settings import flat
from sim.scenario.setup import from_scenario
from tests.campaign import companies, limits, records, remedies, rollouts
from tests.campaign.case import ALLOWED, called
from tests.campaign.job import (
    ALL,
    PLAIN,
    SAME,
    SHARED,
    SLOWER,
    STEPS,
    Found,
    Job,
    not_longer,
    same,
    seconds,
)
from tests.campaign.jobs import Document, drawn
from tests.engine.precision import LOST
from tests.reference.second_opinion import differences, known

TOGETHER = 5  # laws that are tried on a job


@dataclass(frozen=True, slots=True)
class LawTrial:
    """A law on the job of a number; `job` instead of that of the number, when it is tried again."""

    kind: ClassVar[str] = "laws"

    law: str
    part: str
    number: int
    job: Document | None = None

    def to_dict(self) -> dict[str, Any]:
        job = self.job or drawn(self.part, self.number)
        return {"law": self.law, "part": self.part, "number": self.number, "job": job}

    @classmethod
    def of(cls, content: dict[str, Any]) -> "LawTrial":
        return cls(content["law"], content["part"], content["number"], content["job"])

    def violation(self) -> str | None:
        return copy_context().run(self._violation)  # what it allows itself holds for nobody else

    def _violation(self) -> str | None:
        job = Job(self.part, self.job or drawn(self.part, self.number))
        limit.allow(ALLOWED)
        try:
            job.result()
        except InputError:
            return None  # a layout that does not divide, for one
        try:
            return LAWS[self.law][1](job, random.Random(self.number))
        except (InexactError, limit.TooLongError):
            return None  # refused, as it should be


def trial(number: int) -> LawTrial:
    """Laws in turn, so many on one job, whose answers they share; each meets each kind of job that
    it is of as often."""
    job, place = divmod(number, TOGETHER)
    turns = [
        (part, turn)
        for part, names in _of_parts().items()
        for turn in range(-(-len(names) // TOGETHER))
    ]
    again, (part, turn) = job // len(turns), turns[job % len(turns)]
    names = _of_parts()[part]
    begun = again * sum(part == own for own, _ in turns) + turn
    return LawTrial(names[(begun * TOGETHER + place) % len(names)], part, job)


@cache
def _of_parts() -> dict[str, list[str]]:
    """The names of the laws of each kind of job."""
    parts = dict.fromkeys(part for parts, _ in LAWS.values() for part in parts)
    return {part: [name for name, (of, _) in LAWS.items() if part in of] for part in parts}


# --- Ways to the same answer ---------------------------------------------------------------------


def _clock_equals_replay(job: Job, chance: random.Random) -> str:
    try:
        replayed = job.time(engine="replay")
    except InputError:
        return ""  # contends: only the clock plays it
    return same(job.time(engine="clock"), replayed)


def _unfolded(job: Job, chance: random.Random) -> str:
    return same(job.time(), job.time(unfold=True))


def _renamed(job: Job, chance: random.Random) -> str:
    before = job.time()
    Job(job.kind, {"name": "another", **job.document}).write("another.toml")
    return same(before, seconds(run("another.toml")))


def _again(job: Job, chance: random.Random) -> str:
    one, other = (run(load(job.write())).to_dict() for _ in range(2))
    one["wall_seconds"] = other["wall_seconds"] = 0.0
    return "" if json.dumps(one) == json.dumps(other) else "another answer the second time"


_ASK = """
import json, os, sys, sim
for folder in sys.stdin:
    os.chdir(folder.strip())
    answer = sim.run("job.toml").to_dict()
    answer["wall_seconds"] = 0.0
    print(json.dumps({"folder": folder.strip(), "answer": answer}), flush=True)
"""


@cache
def another() -> "subprocess.Popen[str]":
    """A process whose sets have another order, which plays the jobs of folders."""
    return subprocess.Popen(
        [sys.executable, "-c", _ASK],
        env={**os.environ, "PYTHONHASHSEED": str(random.randrange(1, 1000))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _over_hash_seeds(job: Job, chance: random.Random) -> str:
    """Another process, whose sets have another order, says what this one says."""
    here = job.result().to_dict()
    here["wall_seconds"] = 0.0
    sent, said = another().stdin, another().stdout
    assert sent
    assert said
    print(folder := os.getcwd(), file=sent, flush=True)
    # A trial that was killed leaves an answer unread.
    answer = next((own["answer"] for own in map(json.loads, said) if own["folder"] == folder), None)
    return "" if answer == json.loads(json.dumps(here)) else "another answer with other hash seeds"


def _set_is_edit(job: Job, chance: random.Random) -> str:
    """A value set on the command line is the value in the file."""
    leaves = [
        (key, value)
        for key, value in flat(job.document)
        if isinstance(value, int | float) and "." in key and not key.startswith("change.")
    ]
    key, value = chance.choice(leaves)
    new = (not value) if isinstance(value, bool) else value * chance.choice((2, 3)) or 1
    edited = _answer(lambda: job.but({key: new}).time())
    return "" if edited == _answer(lambda: job.time({key: new})) else f"{key} = {new}"


def _answer(ask: Callable[[], float]) -> float | None:
    try:
        return ask()
    except InputError:
        return None


def _in_another_unit(job: Job, chance: random.Random) -> str:
    writings = chance.choice(
        (
            ("network.bandwidth", ("80 Gb/s", "10 GB/s", "10000 MB/s")),
            ("network.latency", ("3 us", "3000 ns", "0.003 ms")),
            ("device.memory", ("16 GiB", "16384 MiB")),
        )
    )
    key, texts = writings
    times = [job.time({key: text}) for text in texts]
    return next((said for one in times if (said := same(times[0], one))), "")


def _swept(job: Job, chance: random.Random) -> str:
    row = sweep(job.write(), [{}], jobs=1).iloc[0]
    if row["reason"] and not row["valid"] and "step_time" not in row and "time" not in row:
        return f"the row is not valid: {row['reason']}"
    return same(job.time(), float(row["step_time" if "step_time" in row else "time"]))


def _json_is_text(job: Job, chance: random.Random) -> str:
    """Both are of one answer, and all numbers are finite."""
    outcomes = [called(("run", job.write(), *option)) for option in ((), ("--json",))]
    for outcome in outcomes:
        if outcome.violation or outcome.code not in (0, DOES_NOT_FIT):
            return outcome.violation or outcome.complaint
    answer, text = json.loads(outcomes[1].output), outcomes[0].output
    told = answer.get("step_time", answer.get("time"))
    shown = human_seconds(told)
    return "" if shown in text else f"{shown} of --json is not in the text"


def _more_samples(job: Job, chance: random.Random) -> str:
    """But for single precision, in which others' durations say which sums are left out of a graph;
    where transfers contend, as nearly as replay is held to the clock."""
    if not job.sampled:
        return ""
    few, more = (samples(load(job.write()), count) for count in (4, 9))
    short, long = few.step_times, more.step_times[:4]
    contended = few.contended or more.contended
    single = LOST * abs(short - few.healthy).max()
    near = TOLERANCE * short if contended else SAME * short + single
    return "" if (abs(long - short) <= near).all() else f"{short} are not {long}"


def _searched(job: Job, chance: random.Random) -> str:
    """Where nothing contends the search says what the run says, and never more than it."""
    if job.document.get("straggler"):
        job = Job(job.kind, {k: v for k, v in job.document.items() if k != "straggler"})
    result = job.result()
    setup = from_scenario(load(job.write()))
    said = float(Evaluator().times([Candidate.of(setup.job, setup.machine)])[0])
    if result.engine == "replay":
        return same(result.step_time, said)
    above = said > result.step_time * (1.0 + SLOWER)
    return f"{said!r} without contention, {result.step_time!r} with" if above else ""


# --- Accounts ------------------------------------------------------------------------------------


def _adds_up(job: Job, chance: random.Random) -> str:
    result: Any = job.result()
    if job.kind != "shared":
        for name, parts in (
            ("breakdown", result.breakdown),
            ("critical path", {n: row["seconds"] for n, row in enumerate(result.critical_path)}),
        ):
            if min(parts.values()) < 0.0:
                return f"{name}: {parts}"
            if said := same(result.step_time, sum(parts.values())):
                return f"{name}: {said}"
        memory = dict(result.memory_per_gpu)
        return same(memory.pop("total"), sum(memory.values()))
    for row in result.workers:
        parts = {key: value for key, value in row.items() if key not in ("rank", "steps")}
        if min(parts.values()) < 0.0 or abs(sum(parts.values()) - 1.0) > SAME:
            return f"worker {row['rank']}: {parts}"
    return same(1.0, sum(result.shares.values()))


def _tokens(job: Job, chance: random.Random) -> str:
    """Rates are what their names say."""
    result: Any = job.result()
    if job.kind == "shared":
        return same(result.samples, result.samples_per_second * result.time)
    batch = job.document["plan"]["global_batch"]
    for name, rate, whole in (
        ("samples", result.samples_per_second, batch),
        ("per GPU", result.tokens_per_second_per_gpu * result.ranks, result.tokens_per_second),
    ):
        if said := same(whole, rate * (result.step_time if name == "samples" else 1.0)):
            return f"{name}: {said}"
    return "" if 0.0 < result.mfu < 1.0 and result.hfu < 1.0 else f"MFU {result.mfu}"


def _likely(job: Job, chance: random.Random) -> str:
    result = job.result()
    low, high = result.step_time_low, result.step_time_high
    return "" if 0.0 < low <= result.step_time_expected <= high else f"{low} to {high}"


# --- What is faster, slower, more ----------------------------------------------------------------


def _faster(key: str, unit: str, factor: float) -> Found:
    def found(job: Job, chance: random.Random) -> str:
        """With all links sound: NCCL weighs its protocols by the rates of sound links, and the
        fewer hops of LL128 that a faster node favours cost bytes (of 128 sent 120 are payload, and
        less of the rate is reached), which a slow NIC then carries."""
        if not job.in_step or not job.sampled:
            return ""
        value = _quantity(job, key)
        if not value:
            return ""
        scaled = f"{factor * value!r} {unit}"
        return not_longer(job.time(), job.time({key: scaled}), f"{key} = {scaled}")

    return found


def _quantity(job: Job, key: str) -> float:
    """An SI value of the topology's file, 0 where it has none."""
    value: Any = topologies.load(job.document["topology"])
    for name in key.split("."):
        value = getattr(value, name, None)
        if name == "peak":
            value = value and getattr(value, job.document["plan"]["precision"], 0.0)
            break
    return float(value or 0.0)


def _faster_products(job: Job, chance: random.Random) -> str:
    key = f"device.peak.{job.document['plan']['precision']}"
    scaled = f"{2.0 * _quantity(job, key)!r} FLOP/s"
    return not_longer(job.time(), job.time({key: scaled}), f"{key} = {scaled}")


def _straggler(job: Job, chance: random.Random) -> str:
    """The same work with another rank slow."""
    if not job.in_step or job.document.get("sharing", {}).get("method") == "parameter_server":
        return ""  # a server sums what comes early while it waits: workers that are alike queue
    factor = chance.choice((1.2, 2.0))
    if job.kind == "shared":
        rank = chance.randrange(job.document["sharing"]["workers"])
        slow = {"sharing.group": [{"ranks": [rank], "slowdown": factor}]}
    else:
        rank = chance.randrange(job.document["gpus"])
        before = job.document.get("straggler", [])
        slow = {"straggler": [*before, {"rank": rank, "factor": factor}]}
    healthy = job.time()
    try:
        slowed = job.but(slow).time()
    except InputError as error:
        return f"plays, and does not with a slow rank {rank}: {error}"
    return not_longer(slowed, healthy, f"without a slow rank {rank}")


def _nodes_swapped(job: Job, chance: random.Random) -> str:
    """Equal nodes change places: a slow rank in one is as bad as in the other.

    Of jobs whose every stage fills pairs of nodes, so that node n and node n xor 1 do the same.
    """
    plan, gpus = job.document["plan"], job.document["gpus"]
    if gpus // plan.get("pp", 1) % 16 or plan.get("ep", 1) > 8 or plan.get("cp", 1) > 1:
        return ""
    rank = chance.randrange(gpus)
    one, other = (
        job.but({"straggler": [{"rank": own, "factor": 1.7}]}).time() for own in (rank, rank ^ 8)
    )
    return same(one, other)


def _workers_swapped(job: Job, chance: random.Random) -> str:
    """Equal workers change places."""
    sharing = job.document["sharing"]
    if not job.in_step or "straggler" in sharing or "site" in sharing:
        return ""
    if sharing["method"] == "data_parallel":  # whose worker 0 has work of its own
        return ""
    if sharing.get("servers") == "colocated" and sharing.get("shards", 1) < sharing["workers"]:
        return ""  # who holds a shard sends less than the others
    if job.document["topology"] == "dgx-1-v100" and sharing["workers"] < 8:
        return ""  # some of the GPUs of a cube mesh have other cables
    ranks = chance.sample(range(sharing["workers"]), 2)
    one, other = (
        job.but({"sharing.group": [{"ranks": [rank], "slowdown": 2.0}]}).time() for rank in ranks
    )
    return same(one, other)


def _twice_the_batch(job: Job, chance: random.Random) -> str:
    """Twice the microbatches take longer, and no more than two steps."""
    twice = {"plan.global_batch": 2 * job.document["plan"]["global_batch"]}
    one, two = job.time(), job.time(twice)
    inside = one * (1.0 - SLOWER) <= two <= 2.0 * one * (1.0 + SLOWER)
    return "" if inside else f"{two!r} for two batches, {one!r} for one"


def _more_layers(job: Job, chance: random.Random) -> str:
    more = {"model.layers": 2 * job.document["change"]["model.layers"]}
    return not_longer(job.time(more), job.time(), "half the layers")


def _longer_sequences(job: Job, chance: random.Random) -> str:
    one, other = (job.time({"model.seq": tokens}) for tokens in (512, 1024))
    return not_longer(other, one, "half the tokens")


def _more_steps(job: Job, chance: random.Random) -> str:
    steps = job.document["sharing"]["steps"]
    return not_longer(job.time({"sharing.steps": 2 * steps}), job.time(), "half the steps")


def _memory(job: Job, settings: dict[str, Any]) -> float:
    """What is alive at the fullest moment, without what an allocator loses of its largest needs."""
    parts = job.result(settings).memory_per_gpu
    return parts["total"] - parts.get("fragmentation", 0.0)


def _recomputation_saves(job: Job, chance: random.Random) -> str:
    if "activations" in job.document["plan"].get("offload", {}):
        return ""  # of what is not kept there is nothing to offload
    if job.document["plan"].get("schedule") == "zb-h1":
        return ""  # what has run again waits for its weight gradients, beside the inputs
    # Of one layer a stage nothing is saved: what runs again is all that there is.
    more = {"model.layers": 4 * job.document["change"]["model.layers"]}
    none, full = (_memory(job, {**more, "plan.recompute": mode}) for mode in ("none", "full"))
    return "" if full <= none * (1.0 + SLOWER) else f"{full} B with recomputation, {none} without"


def _sharding_saves(job: Job, chance: random.Random) -> str:
    if "offload" in job.document["plan"]:
        return ""
    none, sharded = (_memory(job, {"plan.zero": stage}) for stage in (0, 1))
    return "" if sharded <= none * (1.0 + SLOWER) else f"{sharded} B with ZeRO-1, {none} without"


def _offloading_saves(job: Job, chance: random.Random) -> str:
    """What activations take on the host they do not take on the device."""
    if not job.document["plan"].get("offload", {}).get("activations"):
        return ""
    away, here = _memory(job, {}), _memory(job, {"plan.offload.activations": 0.0})
    return "" if away <= here * (1.0 + SAME) else f"{away} B with activations away, {here} here"


def _planned_memory(job: Job, chance: random.Random) -> str:
    """The search's memory of the layout is the run's, and its lower bound is one."""
    result, setup = job.result(), from_scenario(load(job.write()))
    own = setup.job
    space = Space(
        model=own.model,
        topology=setup.machine.topology,
        stack=own.stack,
        global_batch=own.plan.global_batch,
        precision=own.plan.precision,
    )
    mesh = MeshLayouts(space, own.plan, Known())
    mesh.capacity = inf
    candidate, least = mesh.candidate(own.plan), mesh.least_memory(own.plan)
    if candidate is None:
        return ""  # beyond the host's memory
    if least > candidate.memory * (1.0 + SAME):
        return f"at least {least!r} B, but {candidate.memory!r} B"
    return same(result.memory_per_gpu["total"], candidate.memory)


def _model_flops(job: Job, chance: random.Random) -> str:
    """Model FLOPs are of the model and its tokens, whatever the step does besides."""
    usual: Any = job.result()
    changes: list[dict[str, Any]] = [{"plan.recompute": "full"}, {"plan.microbatch": 1}]
    if "parameters" not in job.document["plan"].get("offload", {}):
        changes.append({"plan.zero": 1})
    changed = chance.choice(changes)
    other: Any = job.result(changed)
    flops = [own.mfu * own.step_time for own in (usual, other)]
    return "" if usual.dropped or other.dropped else same(*flops)


def _no_network(job: Job, chance: random.Random) -> str:
    """Without latency and with endless bandwidth nothing is waited for between nodes."""
    usual = job.time()
    fast = {"network.bandwidth": "1e15 B/s", "network.latency": "0 s"}
    return not_longer(usual, job.time(fast), "with an endless network")


def _slow_link(job: Job, chance: random.Random) -> str:
    """A slow link takes no less than a sound one, and next to nothing where it is next to sound."""
    usual: Any = job.result()
    nodes = usual.setup.machine.topology.nodes
    link = f"node{chance.randrange(nodes)}.nic0"
    sick = job.document.get("straggler", [])
    if any(own.get("link") == link for own in sick):
        return ""
    slow, near = (
        {"straggler": [*sick, {"link": link, "factor": factor}]}
        for factor in (chance.choice((1.5, 4.0)), 1.0 + 1e-9)
    )
    if said := not_longer(job.time(slow), usual.step_time, f"{link} sound"):
        return said
    found = job.time(near)
    same = abs(found - usual.step_time) <= 1e-6 * usual.step_time
    return "" if same else f"{usual.step_time!r} with all sound, {found!r} with {link} all but so"


def _as_papers_say(job: Job, chance: random.Random) -> str:
    """Parameters, FLOPs and bytes are those of the formulas that papers print."""
    setup = from_scenario(load(job.write()))
    return "; ".join(differences(setup).values()) if known(setup) else ""


LAWS: dict[str, tuple[tuple[str, ...], Found]] = {
    "it computes and sends what papers say": (PLAIN, _as_papers_say),
    "the clock equals the replay": (STEPS, _clock_equals_replay),
    "folded equals unfolded": (STEPS, _unfolded),
    "renaming changes nothing": (ALL, _renamed),
    "asked twice it is the same": (ALL, _again),
    "it is the same over hash seeds": (ALL, _over_hash_seeds),
    "--set is an edit of the file": (ALL, _set_is_edit),
    "another unit is the same quantity": (STEPS, _in_another_unit),
    "a sweep's row is the run's": (ALL, _swept),
    "JSON is the text's answer": (ALL, _json_is_text),
    "more samples begin with the same": (PLAIN, _more_samples),
    "the search says what the run says": (STEPS, _searched),
    "causes add up": (ALL, _adds_up),
    "rates are of the whole": (ALL, _tokens),
    "the expected time is in its interval": (STEPS, _likely),
    "no link carries more than it can": (STEPS, records.capacity),
    "bytes that leave arrive": (STEPS, records.arrives),
    "memory is never below nothing and closes": (STEPS, records.memory_closes),
    "beyond an endless network there is nothing": (STEPS, limits.endless_network),
    "activations on an endless host are as good as here": (STEPS, limits.endless_host),
    "an endless loader takes no time": (STEPS, limits.endless_loader),
    "a step that waits for samples lasts as they do": (STEPS, limits.waits_for_samples),
    "a loader folded equals a loader unfolded": (STEPS, limits.folded_loader),
    "updated shards go back to the host": (("offload",), limits.updates_return),
    "copies that nothing hides are waited for": (("offload",), limits.copies_are_waited_for),
    "workers with nothing to send are alone": (SHARED, limits.alone),
    "steps that do not vary are the step": (PLAIN, limits.no_jitter),
    "room for all tokens drops none": (("experts", "features"), limits.capacity_without_bound),
    "a rank all but sound is sound": (STEPS, limits.healthy_in_the_limit),
    "MFU is said of the usual peak": (PLAIN, limits.every_peak),
    "an axis of one is none": (STEPS, limits.axes_of_one),
    "keys stand in any order": (ALL, limits.order_of_tables),
    "twice the replicas compute as long": (STEPS, limits.weak_scaling),
    "each layer computes as long as another": (PLAIN, limits.layers_add_up),
    "cheaper launches are not slower": (STEPS, limits.cheaper("stack.launch_forward", 0.5, "s")),
    "a faster host is not slower": (STEPS, limits.cheaper("stack.layer_forward", 0.5, "s")),
    "twice the host's memory is not slower": (
        ("offload", "features"),
        limits.cheaper("host.memory_bandwidth", 2.0, "B/s"),
    ),
    "what a refusal proposes is accepted": (STEPS, remedies.accepted),
    "what is said to fit does": (STEPS, remedies.fits),
    "model FLOPs are of model and tokens": (PLAIN, _model_flops),
    "an endless network is not slower": (STEPS, _no_network),
    "with a slow link the same work takes no less": (STEPS, _slow_link),
    "twice the network is not slower": (ALL, _faster("network.bandwidth", "B/s", 2.0)),
    "half the latency is not slower": (ALL, _faster("network.latency", "s", 0.5)),
    "twice the links of a node are not slower": (STEPS, _faster("node.bandwidth", "B/s", 2.0)),
    "twice the memory's bandwidth is not slower": (
        STEPS,
        _faster("device.memory_bandwidth", "B/s", 2.0),
    ),
    "twice the FLOP/s are not slower": (STEPS, _faster_products),
    "with a slow rank the same work plays, and takes no less": (ALL, _straggler),
    "equal nodes may change places": (STEPS, _nodes_swapped),
    "equal workers may change places": (SHARED, _workers_swapped),
    "twice the batch takes one to two steps": (STEPS, _twice_the_batch),
    "more layers are not faster": (PLAIN, _more_layers),
    "longer sequences are not faster": (STEPS, _longer_sequences),
    "more steps are not faster": (SHARED, _more_steps),
    "recomputation saves memory": (PLAIN, _recomputation_saves),
    "sharding saves memory": (PLAIN, _sharding_saves),
    "offloading activations saves memory": (STEPS, _offloading_saves),
    "the search knows the run's memory": (STEPS, _planned_memory),
    **rollouts.LAWS,
    **companies.LAWS,
}
