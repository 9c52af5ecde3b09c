"""The loop of generation and training keeps the laws of its modes, whatever the seconds."""

import tomllib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

import sim
from sim import kind, questions
from sim.config import catalog
from sim.config.errors import InputError
from sim.engine.events import then
from sim.engine.live_cluster import Event, LiveCluster
from sim.interface.frameworks.loop_writing import written
from sim.jobs.reinforcement.answer import ReinforcementAnswer
from sim.jobs.reinforcement.assemble import outcome
from sim.jobs.reinforcement.loop import GENERATION, Loop
from sim.jobs.reinforcement.scenario import ReinforcementScenario
from sim.jobs.reinforcement.services import Waiting
from sim.jobs.reinforcement.setup import ReinforcementSetup
from sim.jobs.reinforcement.training import balanced
from sim.jobs.reinforcement.transfer import PINNED

SCENARIO: dict[str, Any] = {
    "name": "small",
    "model": "llama3.2-1b",
    "topology": "dgx-h100-ndr",
    "gpus": 8,
    "plan": {"global_batch": 16, "microbatch": 1},
    "reinforcement": {
        "weights": {"tensor": 0.0},
        "prompts": 8,
        "answers": 4,
        "steps": 4,
        "prompt": {"law": "constant", "value": 50, "cap": 64},
        "answer": {"law": "constant", "value": 200, "cap": 512},
        "servers": {"gpus": 4, "layout": {"tp": 1}},
    },
}
WAYS = ("broadcast", "buckets")
SPREAD = {"law": "lognormal", "mean": 200, "sigma": 0.8, "cap": 512}


def set_up(**changes: Any) -> ReinforcementSetup:
    document = deepcopy(SCENARIO)
    document["reinforcement"] |= changes
    setup = kind.set_up(kind.described(document))
    assert isinstance(setup, ReinforcementSetup)
    return setup


def nothing() -> Iterator[Event]:
    return iter(())


def played(setup: ReinforcementSetup, *, training: float | None = None) -> Loop:
    """The loop played; with seconds of `training`, a step takes these, and weights take none."""
    loop = setup.loop()
    if training is not None:
        whole = setup.plan.prompts * setup.plan.answers
        loop.updates = lambda lengths: [training * len(lengths) / whole]
        loop.forward = lambda lengths: 0.0
        loop.hand_over = nothing  # type: ignore[assignment]
    loop.cluster.run(until=loop.cluster.start(loop.train()))
    return loop


def answered(**changes: Any) -> ReinforcementAnswer:
    answer = kind.answer(set_up(**changes))
    assert isinstance(answer, ReinforcementAnswer)
    return answer


def step_of(loop: Loop) -> float:
    """Seconds of the last step."""
    return loop.steps[-1].end - loop.steps[-1].begin


def generation() -> float:
    return played(set_up(), training=0.0).steps[-1].spent[GENERATION]


@pytest.mark.parametrize("share", [0.5, 1.0, 3.0])
def test_turns_take_the_sum_and_one_step_off_the_longer_of_both(share: float) -> None:
    alone = generation()
    training = share * alone
    turns = played(set_up(), training=training)
    assert step_of(turns) == pytest.approx(alone + training, rel=1e-6)
    beside = played(set_up(staleness=1.0), training=training)
    assert step_of(beside) == pytest.approx(max(alone, training), rel=0.02)


@pytest.mark.parametrize("swap", ["drain", "continue", "restart"])
def test_without_staleness_a_swap_meets_no_running_answer(swap: str) -> None:
    steps = [played(set_up(swap=swap, answer=SPREAD), training=1.0).steps]
    steps.append(played(set_up(answer=SPREAD), training=1.0).steps)
    ends = [[step.end for step in own] for own in steps]
    assert ends[0] == pytest.approx(ends[1], rel=1e-12)
    assert all(s.oldest == step.number for step in steps[0] for g in step.groups for s in g.samples)


@pytest.mark.parametrize("swap", ["drain", "continue"])
@pytest.mark.parametrize("staleness", [0.0, 0.5, 1.0, 2.0])
def test_no_answer_to_equal_lengths_is_older_than_the_bound(swap: str, staleness: float) -> None:
    loop = played(set_up(staleness=staleness, swap=swap), training=0.5)
    ages = [step.number - s.oldest for step in loop.steps for g in step.groups for s in g.samples]
    assert max(ages) <= -(-staleness // 1)


def test_more_servers_never_slow_generation() -> None:
    times = []
    for gpus in (1, 2, 4, 6):
        answer = answered(servers={"gpus": gpus, "layout": {"tp": 1}}, answer=SPREAD)
        times.append(answer.generation)
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"staleness": 1.0},
        {"staleness": 1.5, "swap": "continue"},
        {"staleness": 1.5, "swap": "restart"},
        {"oversample": 0.5},
        {"oversample": 0.5, "surplus": "keep", "swap": "continue"},
        {"filtered": 0.3},
        {"chunk": 4, "staleness": 0.5, "swap": "continue"},
        {"servers": {"shared": True, "layout": {"tp": 1}}},
        {"servers": {"shared": True, "gpus": 2}, "staleness": 1.0, "swap": "continue"},
    ],
)
def test_every_token_is_learnt_from_or_lost_or_still_there(changes: dict[str, Any]) -> None:
    setup = set_up(answer=SPREAD, **changes)
    loop = played(setup)
    rollouts, counts = loop.rollouts, loop.rollouts.counts
    waiting = sum(group.written_tokens for group in loop.ready)
    for group in list(rollouts.running.values()):
        rollouts.drop(group)
    loop.cluster.run()
    written = sum(server.batch.tokens for server in rollouts.servers)
    assert written == counts.used + counts.lost + waiting
    learnt = [s for step in loop.steps for g in step.groups for s in g.samples]
    assert all(sample.done == sample.length == sum(sample.versions.values()) for sample in learnt)
    assert len(learnt) == len(set(map(id, learnt))) == 32 * len(loop.steps)
    answer = outcome(setup, loop)
    assert sum(answer.spent.values()) == pytest.approx(answer.step_time, rel=1e-9)
    assert sum(answer.staleness.values()) == pytest.approx(1.0)


def test_partial_rollouts_lose_nothing() -> None:
    loop = played(set_up(staleness=1.0, swap="continue", answer=SPREAD), training=0.2)
    assert loop.rollouts.counts.lost == 0
    learnt = [s for step in loop.steps for g in step.groups for s in g.samples]
    assert any(len(sample.versions) > 1 for sample in learnt)


def test_a_cut_off_drops_what_is_slowest_and_shortens_generation() -> None:
    whole, cut = answered(answer=SPREAD), answered(answer=SPREAD, oversample=0.5)
    assert cut.generation < whole.generation
    assert cut.lost > whole.lost == 0.0
    assert cut.staleness == {"0": 1.0}


def test_groups_that_teach_nothing_are_replaced() -> None:
    loop = played(set_up(filtered=0.4))
    assert loop.filtered > 0
    assert not any(group.filtered for step in loop.steps for group in step.groups)


def test_streaming_hides_training_behind_generation() -> None:
    whole = played(set_up(answer=SPREAD), training=1.0)
    parts = played(set_up(answer=SPREAD, chunk=4), training=1.0)
    assert step_of(parts) < step_of(whole)


def test_levels_that_are_kept_show_servers_without_answers_between_turns() -> None:
    answer = answered(prompts=256, servers={"shared": True}, steps=3, answer=SPREAD)
    begins = [step.begin for step in answer.steps[1:]]
    before = [max((at, level) for at, level in answer.running if at < begin) for begin in begins]
    assert [level for _, level in before] == [0, 0, 0]


def test_a_seed_repeats_a_run_and_another_does_not() -> None:
    first, again = answered(answer=SPREAD), answered(answer=SPREAD)
    other = answered(answer=SPREAD, seed=1)
    assert first.step_time == again.step_time != other.step_time


def test_a_controller_takes_answers_once_and_hands_them_out_before_each_pass_and_update() -> None:
    plain, handed = answered(), answered(controller=1e-4, collected=3e-4)
    each = 1e-4 * 32 * (64 + 512)  # 32 answers, padded to the longest prompt and answer
    for cause, often in (("generation", 3), ("old log-probabilities", 1), ("update", 1)):
        more = handed.spent[cause] - plain.spent[cause]
        assert more == pytest.approx(often * each, rel=1e-6), cause


@pytest.mark.parametrize("swap", ["drain", "continue"])
@pytest.mark.parametrize("staleness", [0.0, 1.0])
def test_no_more_groups_are_written_at_once_than_there_are_places(
    swap: str, staleness: float
) -> None:
    loop = played(set_up(concurrent=3, staleness=staleness, swap=swap, answer=SPREAD), training=1.0)
    assert max(count for _, count in loop.rollouts.levels) == 3 * 4
    assert all(len(step.groups) == 8 for step in loop.steps)
    free = played(set_up(staleness=staleness, swap=swap, answer=SPREAD), training=1.0)
    assert loop.steps[-1].end >= free.steps[-1].end


def test_weights_parked_between_updates_cost_a_copy_each_way_and_pinned_memory() -> None:
    plain, parked = answered(), answered(parked=["weights"])
    size = set_up().training.memory.parts["weights"]
    more = parked.spent["update"] - plain.spent["update"]
    link = 63.0e9 * 0.85  # PCIe 5.0 x16
    assert more == pytest.approx(size / PINNED + 2 * size / link, rel=0.01)


def test_buckets_cost_a_broadcast_and_pinned_memory_for_each_trainers_share() -> None:
    sent, buckets = (answered(weights={"way": way, "tensor": 0.0}).weights for way in WAYS)
    each = sent["bytes"] / 4
    more = buckets["seconds"] - sent["seconds"]
    assert more == pytest.approx(each / PINNED + 2 * each / (63.0e9 * 0.85), rel=0.01)


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_balanced_parts_have_equally_many_answers_and_differ_by_one_answer(parts: int) -> None:
    lengths = [1 + 37 * n * n % 501 for n in range(48)]
    shares = balanced(lengths, parts)
    assert sorted(answer for share in shares for answer in share) == list(range(48))
    assert {len(share) for share in shares} == {48 // parts}
    loads = [sum(lengths[answer] for answer in share) for share in shares]
    assert max(loads) - min(loads) <= max(lengths)


def test_ranks_with_balanced_answers_wait_for_at_most_what_they_would_wait_for_in_order() -> None:
    training = set_up(deal="answers", answer=SPREAD).training
    lengths, ranks = list(training.typical) * 2, training.replicas
    dealt = next(training.dealt(lengths, updates=1))
    in_order = max(sum(lengths[rank::ranks]) for rank in range(ranks))
    assert sum(lengths) / ranks <= dealt.microbatches * dealt.tokens <= in_order


def test_weights_by_way_of_storage_take_what_the_cluster_says() -> None:
    way = {"way": "storage", "tensor": 0.0}
    answer = answered(weights=way)
    size = answer.weights["bytes"]
    # dgx-h100-ndr: a store writes 20 GB/s and reads 40 GB/s; 4 servers read all weights
    assert answer.weights["seconds"] == pytest.approx(size / 20e9 + 4 * size / 40e9, rel=1e-6)
    given = answered(weights=way | {"storage": "10 GB/s"})
    assert given.weights["seconds"] == pytest.approx(5 * size / 10e9, rel=1e-6)


def test_tools_that_wait_keep_answers_from_being_learnt_from() -> None:
    tools = {
        "calls": {"value": 3},
        "tokens": {"value": 20},
        "service": {"law": "constant", "value": 5.0, "workers": 16},
    }
    plain, waiting = answered(), answered(tools=tools)
    # 32 answers of 3 calls of 5 s by 16 workers
    assert waiting.generation >= 32 * 3 * 5.0 / 16
    assert waiting.mean_length == plain.mean_length + 3 * 20


def test_a_reward_is_waited_for_behind_the_last_answer() -> None:
    service = {"law": "constant", "value": 4.0}
    answer = answered(reward={"service": service})
    assert answer.spent["reward"] == pytest.approx(4.0, rel=1e-6)
    read = answered(reward={"model": "llama3.2-1b", "gpus": 1}, servers={"gpus": 3})
    assert 0.0 < read.spent["reward"] < 4.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"servers": {"shared": True}, "chunk": 4}, "pause from the first chunk"),
        ({"servers": {"shared": True}, "staleness": 1.0}, 'swap = "continue"'),
        ({"servers": {"gpus": 3, "layout": {"tp": 2}}}, "no multiple"),
        ({"servers": {"gpus": 8}}, "leaves none"),
        ({"servers": {}}, "no server has GPUs"),
        ({"chunk": 3}, "does not divide"),
        ({"answers": 3}, "no multiple"),
        ({"row": 100}, "row >="),
        ({"answer": {"mean": 600, "sigma": 0.5, "cap": 512}}, "above the cap"),
        ({"reward": {"model": "llama3.2-1b"}}, "GPUs of its own"),
        ({"answer": {"mean": 200, "sigma": 60, "cap": 512}}, "sigma = 60"),
        ({"answer": {"law": "mixture", "parts": [], "cap": 512}}, "at least one"),
        ({"sample": 3}, "does not divide prompts = 8"),
        ({"answers": 10**8}, "would take about"),  # before anything of their number is drawn
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        set_up(**changes)


def test_a_trainer_with_fewer_gpus_than_a_replica_is_refused() -> None:
    document = deepcopy(SCENARIO) | {"gpus": 1}
    document["plan"] |= {"tp": 2}
    document["reinforcement"]["servers"] = {"shared": True}
    with pytest.raises(InputError, match="does not divide the 1 GPUs"):
        kind.set_up(kind.described(document))


def test_a_slow_gpu_slows_the_server_and_the_trainer_that_share_it() -> None:
    servers = {"shared": True, "layout": {"tp": 1}}
    sound, slow = (
        kind.described(
            SCENARIO | {"reinforcement": SCENARIO["reinforcement"] | {"servers": servers}} | sick
        )
        for sick in ({}, {"straggler": [{"rank": 3, "factor": 2.0}]})
    )
    before, after = (kind.answer(kind.set_up(own)) for own in (sound, slow))
    assert isinstance(before, ReinforcementAnswer)
    assert isinstance(after, ReinforcementAnswer)
    generated = (answer.spent["generation"] for answer in (before, after))
    assert 2.0 * next(generated) == pytest.approx(next(generated), rel=1e-6)
    assert after.spent["update"] > 1.2 * before.spent["update"]
    assert after.straggler_seconds == pytest.approx(after.step_time - before.step_time)


def test_workers_serve_in_order_however_many_there_are() -> None:
    def ends(workers: int | None) -> list[float]:
        cluster = LiveCluster(set_up().machine)
        waiting, found = Waiting(cluster, workers), list[float]()
        for seconds in (3.0, 1.0, 2.0, 1.0):
            then(waiting.serve(seconds), lambda _: found.append(cluster.now))
        cluster.run()
        return found

    assert ends(1) == [3.0, 4.0, 6.0, 7.0]
    assert ends(2) == [1.0, 3.0, 3.0, 4.0]
    assert ends(10**12) == ends(4) == ends(None) == [1.0, 1.0, 2.0, 3.0]


def test_a_slow_link_holds_up_the_weights_that_cross_it() -> None:
    document = SCENARIO | {"gpus": 16}
    document["reinforcement"] = SCENARIO["reinforcement"] | {
        "servers": {"gpus": 8, "layout": {"tp": 1}}, "steps": 1, "warmup": 0,
    }  # fmt: skip
    sick = {"straggler": [{"link": "node0.nic0", "factor": 10.0}]}
    seconds = []
    for own in (document, document | sick):
        answer = kind.answer(kind.set_up(kind.described(deepcopy(own))))
        assert isinstance(answer, ReinforcementAnswer)
        seconds.append(answer.weights["seconds"])
    assert seconds[1] > 5.0 * seconds[0]


PACKAGED = [
    name
    for name in catalog.names("scenarios")
    if kind.load(name).kind == "sim.jobs.reinforcement.kind"
]


@pytest.mark.long
@pytest.mark.parametrize("name", PACKAGED)
def test_every_packaged_loop_fits_and_its_seconds_add_up(name: str) -> None:
    few = {"reinforcement.steps": 1, "reinforcement.warmup": 0}
    answer = kind.answer(kind.set_up(kind.load(name, few)))
    assert isinstance(answer, ReinforcementAnswer)
    assert answer.fits
    assert sum(answer.spent.values()) == pytest.approx(answer.step_time, rel=1e-9)


@pytest.mark.parametrize("staleness", [0.0, 2.0])
@pytest.mark.parametrize("chunk", [0, 4])
def test_of_equal_answers_a_sample_of_servers_says_all(staleness: float, chunk: int) -> None:
    reward = {"service": {"law": "constant", "value": 0.01, "workers": 8}}
    same = {"staleness": staleness, "chunk": chunk, "reward": reward, "controller": 1e-6}
    whole, part = (answered(sample=each, **same) for each in (1, 4))
    assert part.step_time == pytest.approx(whole.step_time, rel=1e-9)
    assert part.tokens_per_second == pytest.approx(whole.tokens_per_second, rel=1e-9)
    for own, other in zip(part.pools, whole.pools, strict=True):
        assert own.idle == pytest.approx(other.idle, abs=1e-9)
        assert own.tokens_per_second == pytest.approx(other.tokens_per_second, rel=1e-9)
    assert part.events < 0.6 * whole.events


def test_tokens_a_second_of_pools_do_not_count_the_time_of_the_other_pool() -> None:
    """A longer wait for rewards makes both pools idle, but no slower at work."""
    short, long = (
        answered(reward={"service": {"law": "constant", "value": value, "workers": 8}})
        for value in (0.01, 1.0)
    )
    for own, other in zip(short.pools, long.pools, strict=True):
        assert other.idle > own.idle + 0.1
        assert other.tokens_per_second == pytest.approx(own.tokens_per_second, rel=1e-6)


def test_of_servers_that_are_not_equally_fast_no_sample_is_played() -> None:
    document = deepcopy(SCENARIO) | {"straggler": [{"rank": 1, "factor": 2.0}]}
    document["reinforcement"] |= {"prompts": 1024, "servers": {"shared": True, "layout": {"tp": 1}}}
    for sick, played in (({}, 4), ({"straggler": document.pop("straggler")}, 1)):
        setup = kind.set_up(kind.described(document | sick))
        assert isinstance(setup, ReinforcementSetup)
        assert setup.sampled.plan.sample == played
    document["reinforcement"] |= {"sample": 2}
    with pytest.raises(InputError, match="make some servers slower"):
        kind.set_up(kind.described(document | sick))


def test_a_sample_of_unequal_answers_tells_tokens_a_second_to_some_percent() -> None:
    same = {"staleness": 2.0, "prompts": 64, "answer": SPREAD, "swap": "continue", "steps": 8}
    whole, part = (answered(sample=each, **same) for each in (1, 4))
    assert part.tokens_per_second == pytest.approx(whole.tokens_per_second, rel=0.05)


def test_tables_of_a_division_say_how_much_memory_its_servers_take() -> None:
    servers = {"shared": True, "tuning": {"memory": 0.55}}
    text, _ = written("toml", set_up(servers=servers), 8)
    assert tomllib.loads(text)["reinforcement"]["servers"]["tuning"] == {"memory": 0.55}


@pytest.mark.long
def test_moves_are_the_fastest_first_and_the_simplest_of_those_alike_is_recommended() -> None:
    found = sim.moves(kind.described(deepcopy(SCENARIO)))
    rates = [move.rate for move in found.moves]
    assert rates == sorted(rates, reverse=True)
    assert {move.gpus for move in found.moves} == {8}
    assert any("turns on all GPUs" in move.moved for move in found.moves)
    assert any("2 GPUs write, servers of 2" in move.moved for move in found.moves)
    assert all(move.moved in str(found) for move in found.moves)
    best, chosen = found.moves[0], found.recommended
    assert chosen is not None
    assert chosen.alike(best)
    assert found.to_dict()["recommended"] == chosen.row
    alike = [move for move in found.moves if move.alike(best)]
    assert chosen.place == min(move.place for move in alike)
    assert all(len(move.times) == 5 for move in alike)
    text, _ = found.emitted("verl")
    assert text.startswith("python -m verl")
    assert found.moves[0].result.fits
    for move in found.moves:
        assert 0.0 < 0.9 * move.made.least(found.setup) <= move.cost, move.moved  # type: ignore[union-attr]
    layouts = found.to_dict()["layouts"]
    assert {row["gpus"] for row in layouts} == {2, 3, 4, 5, 6, 8}
    assert len({tuple(row.items()) for row in layouts}) == len(layouts)
    assert min(row["update"] for row in layouts if row["update"] is not None) > 0.0


def test_a_loop_on_other_gpus_divides_them_as_before() -> None:
    given = kind.load("async-rl-32b", {"topology.gpus": 128})
    assert isinstance(given, ReinforcementScenario)
    for scenario in (given, replace(given, gpus=None)):  # all GPUs of its cluster
        half = kind.set_up(scenario.resized(64))
        assert half.columns == {"gpus": 64, "gpus.training": 32, "gpus.servers": 32}


def test_a_number_of_gpus_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="gpus"):
        sim.moves("grpo-8b", {"gpus": "x"})


def test_a_trainer_that_walks_finds_no_worse_layout_than_the_given_one() -> None:
    setup = set_up(answer=SPREAD)
    given = setup.training
    found = next(
        move for move in questions.moves(setup) if "4 GPUs write, servers of 1" in move.change
    )
    made = found.made(setup).training
    assert made.topology.gpus == given.topology.gpus
    seconds = [sum(own.updates(given.typical)) for own in (made, given)]
    assert seconds[0] <= seconds[1] * (1.0 + 1e-9)
