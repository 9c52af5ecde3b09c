"""Laws of all methods, whatever the workers, graphs, stragglers, failures and moments."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.collectives.compression import Compression
from sim.engine.machine import Machine
from sim.jobs.sharing.tables import Fault, Learning, LinkChange, StragglerCause
from sim.variability.laws import Constant
from tests.jobs.sharing.pools import METHODS, fast, one_host, outcome, plan, spans, trained, work
from tests.jobs.sharing.test_failures import VARIANTS

# The variants that fail and return, and what else may change who waits for whom.
EVERY = VARIANTS | {
    "DataParallel": ("data_parallel", {}),
    "Hogwild": ("hogwild", {}),
    "colocated": ("parameter_server", {"servers": "colocated", "shards": 2}),
    "spare": ("parameter_server", {"servers": "spare", "shards": 2}),
    "message by message": ("parameter_server", {"mode": "async", "shards": 2, "fluid": False}),
    "quantised rounds": ("all_reduce", {"compression": Compression(kind="int8")}),
}

FACTORS = st.sampled_from((1.0, 1.5, 2.0, 4.0, 10.0))
ENDS = (".up", ".down")
AWAY = [{"online": on, "offline": off} for on in (0.15, 1.0) for off in (0.15, 1.0)]
MOMENTS = st.sampled_from((0.1, 0.31, 1 / 3, 0.5, 0.77))


def test_every_method_is_held_to_these_laws():
    assert {method for method, _ in EVERY.values()} == METHODS.keys()


@st.composite
def runs(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    """A method with workers of which some are slow or fail, on links of which one may change."""
    variant = draw(st.sampled_from(sorted(EVERY)))
    method, options = EVERY[variant]
    site = options.get("site", 1)
    workers = site * draw(st.integers(2, (8 if method == "hogwild" else 9) // site))
    rank = st.integers(0, workers - 1)
    options = {**options, "workers": workers, "steps": draw(st.integers(1, 8))}
    if options.get("algorithm", "") in ("", "ad_psgd") and method == "gossip":
        shapes = ("ring", "complete", "star") + ("torus",) * (workers not in (5, 7))
        options["graph"] = draw(st.sampled_from(shapes))
    if method == "gossip" and options.get("algorithm") != "random_pairs":
        options["overlap"] = draw(st.booleans())
    if "period" in options:
        options["period"] *= draw(st.integers(1, 5))
    options["straggler"] = (
        StragglerCause(law=Constant(factor=draw(FACTORS)), ranks=(draw(rank),)),
    )
    after = draw(st.sampled_from((None, 0.2, 1.0)))
    if draw(st.booleans()):
        options["fault"] = (Fault(rank=draw(rank), at=draw(MOMENTS), after=after),)
    if draw(st.booleans()) and method != "hogwild":  # whose workers share a memory
        link = LinkChange(link="node0.nic0", at=draw(MOMENTS), factor=draw(FACTORS))
        options["change"] = (link,)
    options["until"] = draw(st.sampled_from((None, None, 0.4, 1.0)))
    options.setdefault("fluid", draw(st.booleans()))
    return variant, method, options


@settings(max_examples=60, deadline=None)
@given(run=runs())
def test_every_second_of_every_worker_is_accounted_for_once(run):
    variant, method, options = run
    result = outcome(method, **options)
    for row in result.workers:
        parts = [value for key, value in row.items() if key not in ("rank", "steps")]
        assert min(parts) >= 0.0, variant
        assert sum(parts) == pytest.approx(1.0, abs=1e-9), variant
        assert method == "federated" or row["idle"] == 0.0, variant


@settings(max_examples=60, deadline=None)
@given(run=runs())
def test_what_leaves_a_host_enters_another(run):
    variant, method, options = run
    carried = trained(method, **options).cluster.carried()
    up, down = (sum(size for name, size in carried.items() if name.endswith(end)) for end in ENDS)
    assert up == pytest.approx(down, rel=1e-9), variant


def uncontended(method: str) -> Machine:
    """Links, or a memory, that take no time worth the name."""
    if method != "hogwild":
        return fast()
    machine = one_host()
    assert machine.topology.host is not None
    memory = replace(machine.topology.host, memory_bandwidth=1e18)
    return replace(machine, topology=replace(machine.topology, host=memory))


@pytest.mark.long
@settings(max_examples=50, deadline=None)
@given(
    variant=st.sampled_from(sorted(EVERY)),
    workers=st.integers(2, 7),
    factors=st.tuples(FACTORS, FACTORS).map(sorted),
    rank=st.integers(0, 6),
)
def test_a_slower_straggler_never_makes_the_same_work_faster(variant, workers, factors, rank):
    """Without contention. With it, workers that are never in step may collide less, which is
    reported by that name; and a worker that drops out of the step it was late for (backup workers)
    comes back in the middle of another."""
    method, options = EVERY[variant]
    workers *= options.get("site", 1)
    times = []
    for factor in factors:
        slow = (StragglerCause(law=Constant(factor=factor), ranks=(rank % workers,)),)
        shared = dict(workers=workers, steps=10, straggler=slow, machine=uncontended(method))
        times.append(outcome(method, **{**options, **shared}).time)
    assert times[1] >= times[0] * (1.0 - 1e-6)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    workers=st.integers(2, 6),
    factor=FACTORS,
    seed=st.integers(0, 50),
    shards=st.integers(1, 3),
    moment=MOMENTS,
)
def test_a_bound_of_nothing_is_bulk_synchronous(workers, factor, seed, shards, moment):
    slow = (StragglerCause(law=Constant(factor=factor), ranks=(0,)),)
    options = dict(workers=workers, shards=shards, seed=seed, straggler=slow, server_passes=3.0)
    options["fault"] = (Fault(rank=1, at=moment, after=0.2),)
    bulk, stale = (outcome("parameter_server", mode=mode, **options) for mode in ("bsp", "ssp"))
    assert spans(stale) == spans(bulk)


RUN = """
import json, sys
from tests.jobs.sharing.test_laws import everything
json.dump(everything(), sys.stdout)
"""


def everything() -> list[Any]:
    """All methods in one list: times, losses, bytes."""
    told = []
    for method, options in EVERY.values():
        slow = (StragglerCause(law=Constant(factor=1.5), ranks=(1,)),)
        result = outcome(method, workers=6, steps=6, straggler=slow, **options)
        told.append([result.time, result.samples, result.bytes, result.staleness["histogram"]])
    return told


@pytest.mark.long
def test_a_run_is_the_same_in_every_process_and_with_every_hash_seed():
    answers = []
    for seed in ("1", "77"):
        asked = [sys.executable, "-c", RUN]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
        answers.append(json.loads(ran.stdout))
    assert answers[0] == answers[1] == json.loads(json.dumps(everything()))


@pytest.mark.parametrize("mode", ["bsp", "async", "ssp"])
def test_with_one_slow_worker_of_eight_the_others_are_not_idle_at_the_end(mode):
    """They train on while there is work: nobody has a share of the work of its own."""
    slow = (StragglerCause(law=Constant(factor=3.0), ranks=(0,)),)
    result = outcome("parameter_server", mode=mode, bound=0, workers=8, shards=8, straggler=slow)
    assert result.shares["idle"] == 0.0
    if mode == "async":
        limited = outcome(
            "parameter_server", mode=mode, workers=8, shards=8, straggler=slow, until=result.time
        )
        assert result.samples_per_second == pytest.approx(limited.samples_per_second, rel=0.05)


def test_a_second_copy_costs_its_devices():
    """Twice the devices never beat as many with nothing slow."""
    jitter = (StragglerCause(law=Constant(factor=1.0)),)
    for copies in (1, 2, 3):
        result = outcome("all_reduce", copies=copies, straggler=jitter)
        assert result.straggler_seconds == pytest.approx((1 - 1 / copies) * result.time, rel=1e-9)
        assert plan("all_reduce", copies=copies).gpus_of_worker(8) == copies


def test_waiting_for_a_neighbour_is_not_communication():
    slow = (StragglerCause(law=Constant(factor=5.0), ranks=(0,)),)
    result = outcome("gossip", workers=3, straggler=slow, workload=work(), machine=fast())
    assert result.workers[1]["waiting"] == pytest.approx(0.8, abs=0.02)
    assert result.workers[1]["communication"] < 1e-6


def test_the_curve_carries_bytes_that_grow_to_the_runs_own():
    result = outcome("gossip", workers=4, steps=20, learning=Learning(task="quadratic"))
    sent = [point.bytes for point in result.curve]
    assert sent == sorted(sent)
    assert 0.9 * result.bytes < sent[-1] <= result.bytes * (1.0 + 1e-12)


@pytest.mark.parametrize("mode", ["async", "backup"])
def test_a_slower_straggler_gains_time_by_contention_alone(mode):
    """The anomaly by its name: four workers in step meet at the server's link, and a step takes
    STEP + 2 x 4 messages; one that is late is out of their way. The same runs on links without
    contention are ordered by severity."""
    options = {"mode": mode, "steps": 20, "backup": int(mode == "backup")}

    def times(**more: Any) -> list[float]:
        slow = [StragglerCause(law=Constant(factor=f), ranks=(0,)) for f in (1.0, 1.5, 3.0, 4.0)]
        return [
            outcome("parameter_server", straggler=(one,), **options, **more).time for one in slow
        ]

    contended, free = times(), times(machine=fast())
    assert contended[1] < 0.95 * contended[0]
    assert contended[3] < contended[2]
    assert free == pytest.approx(sorted(free), rel=1e-6)


@st.composite
def federations(draw: st.DrawFn) -> dict[str, Any]:
    """Clients with unlike data that come and go, are late, slow, fail, or are cut off; a slow one
    that goes before each round is done would never end by itself."""
    workers = draw(st.integers(1, 9))
    rank = st.integers(0, workers - 1)
    slow = StragglerCause(law=Constant(factor=draw(FACTORS)), ranks=(draw(rank),))
    fault = Fault(rank=draw(rank), at=draw(MOMENTS), after=draw(st.sampled_from((None, 0.2, 1.0))))
    away = draw(st.sampled_from(({}, *AWAY)))
    return {
        "workers": workers,
        "steps": draw(st.integers(1, 12)),
        "period": draw(st.integers(1, 7)),
        "fraction": draw(st.sampled_from((0.1, 0.3, 0.5, 1.0))),
        "unequal": draw(st.sampled_from((0.0, 0.5, 2.0))),
        "late": draw(st.sampled_from((0.0, 0.1, 0.3, 0.6))),
        **away,
        "straggler": (slow,),
        "fault": draw(st.sampled_from(((), (fault,)))),
        "until": draw(st.sampled_from((0.05, 0.4, 1.0) if away else (None, 0.05, 0.4, 1.0))),
        "shards": draw(st.integers(1, 3)),
        "server_passes": draw(st.sampled_from((0.0, 3.0, 30.0))),
        "compression": draw(st.sampled_from((Compression(kind="none"), Compression(kind="int8")))),
        "seed": draw(st.integers(0, 50)),
    }


@settings(max_examples=60, deadline=None)
@given(options=federations())
def test_the_seconds_of_federated_clients_add_up_whoever_drops_out(options):
    result = outcome("federated", **options)
    for row in result.workers:
        parts = [value for key, value in row.items() if key not in ("rank", "steps")]
        assert min(parts) >= 0.0
        assert sum(parts) == pytest.approx(1.0, abs=1e-9)
    assert sum(result.shares.values()) == pytest.approx(1.0, abs=1e-9)
