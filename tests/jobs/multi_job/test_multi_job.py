"""Jobs on one cluster keep the laws of max-min sharing, whatever their order and their offsets."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import sim
from sim import kind, questions
from sim.analysis.comparison.stored import stored
from sim.analysis.reliability import saving as reliability
from sim.config.errors import InputError
from sim.hardware.cluster import topology as topologies
from sim.jobs.multi_job import folding, repeated
from sim.jobs.multi_job.answer import JobRow, MultiJobAnswer
from sim.jobs.multi_job.kind import MultiJobSetup
from sim.jobs.multi_job.paces import Paces
from sim.jobs.multi_job.placed import Place
from sim.jobs.multi_job.schedule import Cluster
from sim.jobs.multi_job.setup import Placed, placed

DDP = {
    "model": "llama3-8b",
    "topology": "dgx-h100-ndr",
    "plan": {"global_batch": 32, "tp": 8, "dp": 2, "microbatch": 1},
}
SMALL = {"model.layers": 2, "stack.overlap_gradients": False, "stack.overlap_gather": False}
# Two pods of two nodes, whose uplinks carry as much as one of 16 NICs.
PODS = {"network.nodes_per_pod": 2, "network.oversubscription": 16}


def job(nodes: list[int], **more: Any) -> dict[str, Any]:
    return {"scenario": DDP, "set": SMALL, "nodes": nodes, "name": f"on {nodes[0]}"} | more


def cluster(*jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    base = {"name": "two", "topology": "h100-grand-teton-roce", "gpus": 32, "change": PODS}
    return base | {"job": list(jobs)} | more


def played(*jobs: dict[str, Any], **more: Any) -> MultiJobAnswer:
    answer = kind.answer(kind.set_up(kind.described(cluster(*jobs, **more))))
    assert isinstance(answer, MultiJobAnswer)
    return answer


def steps(answer: MultiJobAnswer) -> dict[str, float | None]:
    return {row.name: row.step_time for row in answer.jobs}


def test_jobs_on_links_of_their_own_are_as_fast_as_alone() -> None:
    answer = played(job([0, 1]), job([2, 3]))
    assert not answer.links
    for row in answer.jobs:
        assert row.step_time == pytest.approx(row.alone, rel=1e-9)


def test_a_job_that_is_played_again_and_again_takes_its_step_each_time() -> None:
    setup = kind.set_up(kind.described(cluster(job([0, 2]), job([1, 3]))))
    assert isinstance(setup, MultiJobSetup)
    run = Cluster(setup)
    run.course()
    first, second = (visit.job for visit in run.running)
    assert first
    assert second
    pair = folding.together([first.guest, second.guest])
    seconds = repeated.repeat(pair, [0.0, 3.0 * first.seconds], 1)[0].seconds
    assert seconds[:3] == pytest.approx([first.seconds] * 3, rel=1e-9)


def test_two_equal_jobs_on_one_uplink_wait_for_one_another_s_bytes() -> None:
    """Alone, an all-reduce is as long as its bytes take on the uplink; together, twice as long."""
    answer = played(job([0, 2]), job([1, 3]))
    one, two = answer.jobs
    assert one.step_time == pytest.approx(two.step_time, rel=1e-9)
    uplink = answer.links[0]
    sent = uplink.rates[one.name] * one.step_time
    assert one.step_time - one.alone == pytest.approx(sent / uplink.capacity, rel=1e-6)
    assert one.slowed_by == {two.name: pytest.approx(one.step_time - one.alone)}
    assert (answer.fairness, uplink.busy <= 1.0) == (pytest.approx(1.0), True)


def test_steps_that_take_turns_keep_their_pace() -> None:
    """Rajasekaran et al., CASSINI (NSDI 2024): phases of communication that interleave are free."""
    given, best = (played(job([0, 2]), job([1, 3]), offset=how) for how in ("given", "best"))
    assert given.slowdown > 1.05
    assert best.slowdown < 1.0 + 0.1 * (given.slowdown - 1.0)
    assert best.gained == pytest.approx(2.0 * (given.slowdown - best.slowdown))


def test_jobs_that_come_by_and_by_are_slowed_as_in_the_mean_over_their_phases() -> None:
    """The other's phase of communication is as likely to meet one's own as any."""
    jobs, count = (job([0, 2]), job([1, 3])), 12
    alone = played(jobs[0]).jobs[0].alone
    phases = [job([1, 3], start=f"{alone * part / count} s") for part in range(count)]
    met = fmean(played(jobs[0], other).slowdown for other in phases)
    queue = played(*(own | {"every": "1 s", "steps": 500} for own in jobs), policy="fifo")
    assert queue.slowdown - 1.0 == pytest.approx(met - 1.0, rel=0.25)


def test_the_order_of_jobs_in_the_file_says_nothing() -> None:
    there = steps(played(job([0, 2]), job([1, 3], start="0.1 s")))
    assert steps(played(job([1, 3], start="0.1 s"), job([0, 2]))) == pytest.approx(there, rel=1e-9)


def test_a_third_job_speeds_up_nobody() -> None:
    wide = {"gpus": 48, "change": PODS | {"network.nodes_per_pod": 3}}
    two = steps(played(job([0, 3]), job([1, 4]), **wide))
    three = steps(played(job([0, 3]), job([1, 4]), job([2, 5]), **wide))
    assert all(three[name] >= two[name] * (1 - 1e-9) for name in two)


def test_folded_jobs_are_as_fast_as_jobs_played_rank_by_rank(monkeypatch: Any) -> None:
    jobs = job([0, 2]), job([1, 3], start="0.05 s")
    folded = steps(played(*jobs))
    known = folding.Folding
    monkeypatch.setattr(folding, "Folding", lambda *given: known(*given, unfold=True))
    assert steps(played(*jobs)) == pytest.approx(folded, rel=1e-9)


@pytest.mark.parametrize("nodes", [0, 2])
def test_jobs_share_the_store_that_both_of_them_read(nodes: int) -> None:
    """Alone a step reads its 32 samples of 100 MB in 1.6 s; two jobs take twice as long together,
    or just as long where each has a store of its own."""
    store = {"kind": "parallel", "read": "2 GB/s", "write": "2 GB/s", "nodes": nodes}
    loader = {"scenario": DDP | {"loader": {"read": "100 MB"}}}
    change = PODS | {"network.oversubscription": 1.0, "storage": store}
    answer = played(job([0, 1], **loader), job([2, 3], **loader), change=change)
    for row in answer.jobs:
        assert row.alone == pytest.approx(1.6, rel=1e-6)
        assert row.step_time == pytest.approx(1.6 if nodes else 3.2, rel=1e-6)
    assert [link.name for link in answer.links] == ([] if nodes else ["storage0.down"])


def test_tables_that_name_neither_cluster_nor_gpus_fill_the_nodes_of_their_job() -> None:
    short = {"model": "llama3-8b", "plan": {"global_batch": 32, "tp": 8}}
    at = {"topology": "h100-grand-teton-roce"}
    full = played(job([0, 1], scenario=short | at | {"gpus": 16}), job([2, 3], scenario=DDP | at))
    assert steps(played(job([0, 1], scenario=short), job([2, 3], scenario=DDP))) == steps(full)


def test_jobs_come_when_there_is_room_and_leave_when_they_are_done() -> None:
    many = {"scenario": DDP, "set": SMALL, "name": "many", "copies": 3, "steps": 10}
    answer = played(many, policy="fifo")
    first, second, third = answer.jobs
    assert (first.waited, second.waited) == (0.0, 0.0)
    assert third.waited == pytest.approx(10 * first.alone)
    assert answer.makespan == pytest.approx(20 * first.alone)
    assert answer.utilisation == pytest.approx(0.75)


ONE = {
    "model": "llama3-8b",
    "topology": "dgx-a100-hdr",
    "gpus": 1,
    "plan": {"global_batch": 1, "recompute": "full"},
}


def within_a_node(*jobs: dict[str, Any], topology: str = "dgx-a100-hdr") -> MultiJobAnswer:
    document = {"name": "node", "topology": topology, "gpus": 8, "job": list(jobs)}
    answer = kind.answer(kind.set_up(kind.described(document)))
    assert isinstance(answer, MultiJobAnswer)
    return answer


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_a_node_has_room_for_as_many_jobs_as_its_gpus_are_enough_for(gpus: int) -> None:
    """Two GPUs of a DGX A100 share a PCIe link; a job on one of them leaves the other free."""
    each = {"scenario": ONE, "set": SMALL | {"gpus": gpus, "plan.global_batch": gpus}}
    answer = within_a_node(each | {"copies": 8 // gpus})
    assert {row.nodes for row in answer.jobs} == {"0"}
    assert all(row.begun == 0.0 for row in answer.jobs)


def test_gpus_that_share_pcie_links_otherwise_than_the_first_are_refused() -> None:
    pair = {"scenario": ONE, "set": SMALL | {"gpus": 2, "plan.global_batch": 2}}
    assert within_a_node(pair | {"gpus": [2, 3]}).jobs
    with pytest.raises(InputError, match="begin amid the GPUs of a PCIe link"):
        within_a_node(pair | {"gpus": [1, 2]})


def test_jobs_that_are_placed_like_others_meet_on_links_of_their_own() -> None:
    """Four copies, of which two share the uplinks of one pair of pods and two those of another."""
    pods = {"network.nodes_per_pod": 2, "network.oversubscription": 16}
    many = {"scenario": DDP, "set": SMALL, "name": "many", "copies": 4, "place": "spread"}
    answer = played(many, gpus=64, change=pods)
    assert len({link.name for link in answer.links}) == len(answer.links)
    assert {frozenset(link.rates) for link in answer.links} == {
        frozenset((row.name, *row.slowed_by)) for row in answer.jobs
    }


def test_paces_on_a_torus_are_those_of_the_cables_between_its_nodes() -> None:
    ring = {"model": "llama3-8b", "topology": "example-torus-2d", "gpus": 4}
    one = {"scenario": ring | {"plan": {"global_batch": 4, "recompute": "full"}}, "set": SMALL}
    document = {"name": "torus", "topology": "example-torus-2d", "job": [one]}
    setup = kind.set_up(kind.described(document))
    assert isinstance(setup, MultiJobSetup)

    def pair(*places: tuple[int, ...]) -> list[Placed]:
        on = setup.machine
        return [placed(setup.templates[0], str(nodes), Place(on.topology, nodes, (0,)), on)
                for nodes in places]  # fmt: skip

    pairs = pair((1, 5, 14, 15), (2, 4, 9, 10)), pair((7, 8, 11, 14), (0, 4, 5, 10))
    together, apart = Paces(6), [Paces(6).company(own, [0.0, 0.0]).paces for own in pairs]
    assert apart[0] != apart[1]
    assert [together.company(own, [0.0, 0.0]).paces for own in pairs] == apart


def test_nothing_is_said_of_the_use_of_a_cluster_for_no_time() -> None:
    answer = played(job([0, 1]), job([2, 3]))
    assert (answer.makespan, answer.utilisation, answer.fragmentation) == (None, None, None)


def test_a_small_job_passes_a_large_one_only_with_backfilling() -> None:
    small = {"scenario": DDP, "set": SMALL, "steps": 10}
    large = {"scenario": DDP, "set": SMALL | {"plan.dp": 4}, "steps": 10, "name": "large"}
    jobs = [small | {"name": "first"}, large | {"start": "1 ms"}, small | {"start": "2 ms"}]
    last = [played(*jobs, policy=policy).jobs[-1].waited for policy in ("fifo", "backfill")]
    assert last[0] > 0.0
    assert last[1] == pytest.approx(0.0, abs=1e-6)


def test_a_job_knows_its_links_by_its_own_names() -> None:
    cluster = topologies.load("dgx-a100-hdr").with_gpus(32)
    for place in (Place(cluster, (1, 3), tuple(range(8))), Place(cluster, (2,), (4, 5))):
        links = list(place.topology().links)
        assert [place.own(place.link(link)) for link in links] == links


def test_a_packed_job_waits_for_a_pod_instead_of_two_halves() -> None:
    one = {"scenario": DDP, "set": SMALL | {"gpus": 8, "plan.dp": 1}, "steps": 10, "name": "one"}
    two = {"scenario": DDP, "set": SMALL, "steps": 10, "start": "2 us"}
    jobs = [one | {"nodes": [0]}, one | {"nodes": [2], "name": "other"}, two]
    answers = [played(*jobs, policy=policy).jobs for policy in ("backfill", "packed")]
    (*_, split), (*_, packed) = answers
    assert (split.nodes, packed.nodes) == ("1, 3", "0-1")
    assert split.begun == pytest.approx(2e-6)
    assert packed.begun == pytest.approx(answers[1][0].ended)


def test_a_fault_costs_the_steps_since_the_last_checkpoint_and_the_restart() -> None:
    steps, job_ = 400, {"scenario": DDP, "set": SMALL, "steps": 400}
    alone = played(job_, policy="fifo").jobs[0]
    table = {"every": f"{16 * alone.ended} s", "checkpoint": "1 s", "restart": "2 s"}
    hit = played(job_, policy="fifo", faults=table, horizon="1 h", seed=3, gpus=32).jobs[0]
    assert hit.faults > 0
    assert 0.0 <= hit.lost <= hit.faults * 1.0
    assert hit.ended == pytest.approx(steps * alone.alone + hit.lost + 2.0 * hit.faults)
    assert hit.step_time == pytest.approx(alone.step_time)


def test_a_node_under_repair_is_no_room() -> None:
    many = {"scenario": DDP, "set": SMALL, "steps": 400, "copies": 2}
    alone = played(many, policy="fifo").jobs[0].ended
    table = {"every": f"{10 * alone} s", "checkpoint": "1 s", "restart": "1 s", "repair": "1 d"}
    answer = played(many, policy="backfill", faults=table, horizon="10 h")
    assert any(job.ended is None or job.ended > 2 * alone for job in answer.jobs)
    assert answer.utilisation < 0.5


@pytest.mark.parametrize(
    ("jobs", "more", "fault"),
    [
        ([job([0, 1]), job([1, 2])], {}, "another job has GPUs of node 1"),
        ([job([0, 9])], {}, "there is no node 9 among 4"),
        ([job([0, 1, 2])], {}, "its plan takes 16 GPUs, its place has 24"),
        ([job([0, 1], place="spread")], {}, "not several"),
        ([{"scenario": DDP, "copies": 3}], {}, "takes 16 GPUs; 0 of 32 are free"),
        ([{"scenario": DDP, "copies": 3}], {"policy": "fifo"}, "jobs that never end"),
        ([{"scenario": DDP, "copies": 10**9}], {}, "1,000,000,000 jobs would take about"),
        ([{"scenario": DDP, "set": {"plan.dp": 16}}], {}, "takes 128 GPUs; the cluster has 32"),
        ([{"scenario": DDP, "set": {"network.bandwidth": "1 Gb/s"}}], {}, "which all jobs share"),
        ([job([0, 1])], {"stack": "megatron-core"}, "stack is each job's own"),
        ([], {}, "no .*job"),
        ([job([0, 1])], {"faults": {"every": "9 h"}}, "faults go on forever: set a horizon"),
        ([job([0, 1])], {"policy": "packed", "place": "spread"}, "leave place out"),
    ],
)
def test_what_cannot_be_is_refused(jobs: Any, more: Any, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        played(*jobs, **more)


def test_every_job_stays_on_its_own_gpus() -> None:
    """A GPU that is slow slows the job that has it, and nobody else."""
    slow = [{"rank": 17, "factor": 2.0}]
    answers = [played(job([0, 1]), job([2, 3]), straggler=s) for s in ([], slow)]
    healthy, sick = map(steps, answers)
    lost = [row.straggler_seconds for row in answers[1].jobs]
    assert lost == [0.0, pytest.approx(sick["on 2"] - healthy["on 2"], rel=0.01)]
    assert answers[1].straggler_seconds == sum(lost)
    assert sick["on 0"] == pytest.approx(healthy["on 0"], rel=1e-9)
    assert sick["on 2"] > 1.2 * healthy["on 2"]


def test_ways_to_place_jobs_stand_side_by_side(tmp_path: Path) -> None:
    apart, together = (played(*jobs) for jobs in (
        (job([0, 1]), job([2, 3])), (job([0, 2]), job([1, 3]))))  # fmt: skip
    compared = sim.compare({"apart": apart, "together": together})
    assert compared.best.name == "apart"
    means = [fmean(row.step_time or 0.0 for row in a.jobs) for a in (apart, together)]
    assert "on average over the jobs" in compared.reason
    assert compared.costs == pytest.approx(means)
    assert sim.compare({"one": apart, "other": apart}).reason.startswith(
        "one and other take equally long"
    )
    rows = tuple(replace(row, fits=False) for row in apart.jobs)
    refused = sim.compare({"crowded": replace(apart, jobs=rows), "together": together})
    assert refused.best.name == "together"
    assert refused.reason.startswith("crowded would not run: on 0 needs more memory")
    (tmp_path / "apart.json").write_text(json.dumps(apart.to_dict()))
    assert replace(stored(tmp_path / "apart.json"), timeline=apart.timeline) == apart


def test_an_answer_reads_like_a_table() -> None:
    text = str(played(job([0, 2]), job([1, 3])))
    assert "2 jobs on 32 GPUs" in text
    assert "Who slows whom" in text
    assert "pod0.up" in text


def test_workers_that_share_updates_run_beside_a_job_as_alone() -> None:
    servers = {"scenario": "ps-bsp", "name": "servers"}
    alone = kind.answer(kind.set_up(kind.load("ps-bsp")))
    gpus = alone.inputs.gpus
    each = 8
    whole = {"scenario": DDP, "set": SMALL, "nodes": [0, 1], "name": "plan"}
    base = {"name": "mixed", "topology": "dgx-a100-hdr", "gpus": 32, "job": [whole]}
    nodes = list(range(2, 2 + -(-gpus // each)))
    beside = {**base, "job": [whole, servers | {"nodes": nodes}], "gpus": 8 * (nodes[-1] + 1)}
    answer = kind.answer(kind.set_up(kind.described(beside)))
    assert {row.name for row in answer.get("jobs")} == {"plan", "servers"}
    assert all(row.step_time == row.alone for row in answer.get("jobs"))


def test_workers_that_share_updates_meet_others_on_links() -> None:
    """Each job has the mean over all phases: nobody is faster."""
    shared = {"method": "local_sgd", "period": 1, "steps": 8, "workers": 2, "worker": 8, "batch": 1}
    local = {"scenario": {"model": "llama3-8b", "sharing": shared}, "set": {"model.layers": 2},
             "nodes": [1, 3], "name": "local"}  # fmt: skip
    (plan, workers), (again, same) = (
        sorted(played(*jobs).jobs, key=lambda row: -len(row.name))
        for jobs in ((job([0, 2], name="a plan"), local), (local, job([0, 2], name="a plan")))
    )
    assert (again.step_time, same.step_time) == pytest.approx((plan.step_time, workers.step_time))
    for row in (plan, workers):
        assert row.slowdown > 1.001
        assert row.slowed_by.keys() == {"a plan", "local"} - {row.name}
    apart = played(job([0, 1], name="a plan"), local | {"nodes": [2, 3]})
    assert not apart.links
    assert all(row.step_time == row.alone for row in apart.jobs)


def test_in_the_mean_over_phases_replicas_meet_others_on_the_uplinks_of_all_their_pods() -> None:
    """Whether two jobs meet on the first pod of both, or on the last of one and the first of the
    other, and wherever the replicas of a job are that behave alike."""
    saves = DDP | {"checkpoints": {"steps": 20, "storage": "2 GB/s"}}
    first, last = (
        [row.step_time for row in played(job([0, 2], scenario=saves), job(other, scenario=saves),
                                         gpus=64).jobs]
        for other in ([1, 4], [3, 4])
    )  # fmt: skip
    assert last == pytest.approx(first, rel=1e-4)
    assert min(first) > 1.05 * played(job([0, 2])).jobs[0].alone


def test_who_slows_whom_compares_means_with_means() -> None:
    """The last job repeats no step, so that all are seen in the mean over phases. Without it they
    could be played, in the phases that they have: that is no cost of it."""
    shared = {"method": "local_sgd", "period": 1, "steps": 8, "workers": 2, "worker": 8, "batch": 1}
    local = {"scenario": {"model": "llama3-8b", "sharing": shared}, "set": {"model.layers": 2},
             "nodes": [7, 8], "name": "local"}  # fmt: skip
    answer = played(job([0, 2]), job([3, 4]), job([5, 6]), local, gpus=80)
    costs = {row.name: row.slowed_by for row in answer.jobs}
    assert costs["on 0"].keys() == {"on 3"}
    assert all(cost > 0.0 for row in costs.values() for cost in row.values())


STORE = {"kind": "parallel", "read": "2 GB/s", "write": "2 GB/s", "nodes": 0}
FREE = {"network.nodes_per_pod": 2, "network.oversubscription": 1.0}


def saving(*jobs: dict[str, Any], stores: int = 0, **more: Any) -> MultiJobAnswer:
    """Jobs with checkpoints on one store, or on one for each so many nodes."""
    return played(*jobs, change=FREE | {"storage": STORE | {"nodes": stores}}, steady=4, **more)


def saver(nodes: list[int], start: str = "0 s", **checkpoints: Any) -> dict[str, Any]:
    table = {"steps": 20} | checkpoints
    return job(nodes, start=start, scenario=DDP | {"checkpoints": table})


@pytest.fixture(scope="module")
def alone() -> JobRow:
    return saving(saver([0, 1])).jobs[0]


def test_a_checkpoint_alone_takes_as_long_as_goodput_says(alone: JobRow) -> None:
    given = {"name": "one", **DDP, "topology": "h100-grand-teton-roce", "gpus": 16}
    given |= {"checkpoints": {"steps": 20}, "change": FREE | {"storage": STORE}}
    one = kind.described(given, SMALL)
    setup = kind.set_up(one)
    pace = questions.pace(setup)
    stop = reliability.saving(setup, pace, one.checkpoints).stop
    assert alone.checkpoint_alone == pytest.approx(stop, rel=1e-9)
    assert stop == pytest.approx(pace.size / 2e9, rel=1e-6)
    assert alone.checkpoint_time == pytest.approx(stop, rel=1e-9)
    assert alone.stopped == pytest.approx(alone.checkpoints * stop, rel=1e-6)
    assert alone.step_time == pytest.approx(alone.alone, rel=1e-9)


def test_equal_jobs_that_write_at_once_take_twice_as_long(alone: JobRow) -> None:
    answer = saving(saver([0, 1]), saver([2, 3]))
    for row in answer.jobs:
        assert row.checkpoint_time == pytest.approx(2.0 * alone.checkpoint_time, rel=1e-6)
        assert row.step_time == pytest.approx(alone.step_time, rel=1e-9)
    store = next(link for link in answer.links if link.name == "storage0.up")
    assert store.busy == pytest.approx(1.0)  # all bytes, and no more than the store takes
    assert len(store.rates) == 2


@pytest.mark.parametrize("apart", ["stores", "moments"])
def test_jobs_that_write_apart_write_as_alone(alone: JobRow, apart: str) -> None:
    late = f"{1.5 * alone.checkpoint_alone if apart == 'moments' else 0.0} s"
    pair = saver([0, 1], steps=100), saver([2, 3], late, steps=100)
    answer = saving(*pair, stores=2 if apart == "stores" else 0)
    for row in answer.jobs:
        assert row.checkpoint_time == pytest.approx(alone.checkpoint_time, rel=1e-6)
        assert row.step_time == pytest.approx(alone.step_time, rel=1e-9)


def test_checkpoints_that_overlap_in_part_share_the_store_for_that_long(alone: JobRow) -> None:
    """The second begins when half of the first is written: each has 1/2 + 2 x 1/2 of its time."""
    late = f"{alone.checkpoint_alone / 2.0} s"
    pair = saver([0, 1]) | {"steps": 30}, saver([2, 3], late) | {"steps": 30}
    for row in saving(*pair).jobs:
        assert row.checkpoint_time == pytest.approx(1.5 * alone.checkpoint_alone, rel=1e-6)


def test_training_goes_on_beside_an_asynchronous_checkpoint(alone: JobRow) -> None:
    each = [saver(nodes, steps=100, asynchronous=True) for nodes in ([0, 1], [2, 3])]
    more = {"topology": "dgx-h100-ndr", "change": {"storage": STORE}, "steady": 4}
    later, both = played(each[0], **more).jobs[0], played(*each, **more).jobs[0]
    assert later.stopped < 0.2 * later.checkpoints * alone.checkpoint_time
    assert later.checkpoint_time == pytest.approx(later.checkpoint_alone, rel=1e-2)
    assert both.checkpoint_time > 1.5 * later.checkpoint_time
    assert min(both.step_time, later.step_time) >= later.alone * (1.0 - 1e-9)


def test_after_a_fault_a_job_reads_its_checkpoint_back() -> None:
    run = saver([0, 1]) | {"steps": 400}
    del run["nodes"]
    sound = saving(run, policy="fifo").jobs[0]
    table = {"every": f"{16 * sound.ended} s", "restart": "2 s"}
    hit = saving(run, policy="fifo", faults=table, horizon="1 h", seed=3).jobs[0]
    assert hit.faults > 0
    lost = hit.lost + 2.0 * hit.faults + hit.stopped - sound.stopped
    assert hit.ended == pytest.approx(sound.ended + lost)


def test_a_store_that_is_not_known_cannot_be_written() -> None:
    with pytest.raises(InputError, match="does not say what its storage is"):
        played(saver([0, 1]))


def test_jobs_of_one_file_have_names_of_their_own() -> None:
    rows = played(job([0, 1], name=""), job([2, 3], name="")).jobs
    assert [row.name for row in rows] == ["job 1", "job 2"]
    same = played(job([0, 1], name="a"), job([2, 3], name="a")).jobs
    assert [row.name for row in same] == ["a (1)", "a (2)"]


def test_steps_are_counted_where_all_jobs_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar of jobs that have come would be full from the beginning, and hide that of steps."""
    shown = list[str]()

    def polled(*_: object, unit: str, **__: object) -> object:
        shown.append(unit)
        return nullcontext()

    monkeypatch.setattr("sim.jobs.multi_job.schedule.polled", polled)
    played(job([0, 1]), job([2, 3]))
    assert not shown
    played(job([0, 1]), job([2, 3]) | {"start": "1 s"})
    assert shown == ["job"]
