"""Laws of servers and of loops of reinforcement learning."""

import random
from typing import Any, cast

from sim import kind, run
from sim.jobs.generation.answer import Generated
from sim.jobs.generation.kind import requests
from sim.jobs.generation.scenario import GenerationScenario
from sim.jobs.generation.setup import GenerationSetup
from sim.jobs.reinforcement.loop import Loop
from sim.jobs.reinforcement.setup import ReinforcementSetup
from sim.kind import load
from sim.model.transformer import Transformer
from tests.campaign.job import Job, not_longer, same

SERVERS, LOOPS = ("servers",), ("loops",)
_INSTANT = 0.05  # relative: what steps that are cut by a batch may add to the longer side


# --- Servers --------------------------------------------------------------------------------------


def tokens_of_answers(job: Job, chance: random.Random) -> str:
    """Servers write the tokens that the law of lengths has drawn, and no others."""
    scenario = cast(GenerationScenario, load(job.write()))
    own = scenario.generation
    drawn = sum(one.answer for number in range(own.prompts) for one in requests(own, number))
    answer = cast(Generated, run(scenario))
    if answer.answers != own.prompts * own.answers:
        return f"{answer.answers} answers to {own.prompts} prompts"
    return "" if answer.tokens == drawn else f"{answer.tokens} tokens of {drawn}"


def more_servers(job: Job, chance: random.Random) -> str:
    """Twice the servers take no longer: each has a part of what one had."""
    own = job.document["generation"]
    twice = {"generation.servers": 2 * own["servers"], "gpus": 2 * job.document["gpus"]}
    return not_longer(job.time(), job.time(twice), "twice the servers")


def cache_by_hand(job: Job, chance: random.Random) -> str:
    """A token has a key and a value of each head of keys in each layer, in whole blocks."""
    setup = cast(GenerationSetup, kind.set_up(load(job.write())))
    speed, model = setup.speed, cast(Transformer, setup.speed.model)
    layout, block = speed.layout, speed.engine.block
    heads = max(1, (model.kv_heads or model.heads) // layout.tp)
    each = {"bf16": 2, "fp8": 1}[layout.cache]
    by_hand = 2 * model.layers * heads * (model.hidden // model.heads) * each
    if said := same(speed.bytes_per_token, by_hand):
        return said
    left = speed.cache_bytes - speed.cache_tokens * by_hand
    return "" if 0.0 <= left < block * by_hand else f"{left} B of the cache are left"


# --- Loops ----------------------------------------------------------------------------------------


def _set_up(job: Job, settings: dict[str, Any] | None = None) -> ReinforcementSetup:
    return cast(ReinforcementSetup, kind.set_up(load(job.write(), settings or {})))


def _played(setup: ReinforcementSetup, training: float | None = None) -> Loop:
    """The loop played; with seconds of `training`, a step trains so long, and weights take none."""
    loop, whole = setup.loop(), setup.plan.prompts * setup.plan.answers
    if training is not None:
        loop.updates = lambda lengths: [training * len(lengths) / whole]
        loop.forward = lambda lengths: 0.0
        loop.hand_over = lambda: iter(())  # type: ignore[assignment,return-value]
    loop.cluster.run(until=loop.cluster.start(loop.train()))
    return loop


def tokens_are_kept(job: Job, chance: random.Random) -> str:
    """Each written token is learnt from, lost with its answer, or still there."""
    loop = _played(_set_up(job), 0.1)
    rollouts = loop.rollouts
    waiting = sum(group.written_tokens for group in loop.ready)
    for group in list(rollouts.running.values()):
        rollouts.drop(group)
    loop.cluster.run()
    written = sum(server.batch.tokens for server in rollouts.servers)
    known = rollouts.counts.used + rollouts.counts.lost + waiting
    return "" if written == known else f"{written} tokens written, {known} known"


def on_policy(job: Job, chance: random.Random) -> str:
    """Without staleness no answer runs when weights change, so that all swaps are one, and each
    answer is of the newest weights."""
    bound = {"reinforcement.staleness": 0.0, "reinforcement.oversample": 0.0}
    ends = []
    for swap in ("drain", "continue", "restart"):
        loop = _played(_set_up(job, bound | {"reinforcement.swap": swap}), 0.3)
        ends.append(loop.steps[-1].end)
        samples = [s for step in loop.steps for g in step.groups for s in g.samples]
        if any(len(own.versions) > 1 for own in samples):
            return f"several versions wrote an answer on-policy ({swap})"
        if any(
            s.oldest != step.number for step in loop.steps for g in step.groups for s in g.samples
        ):
            return f"an answer is old on-policy ({swap})"
    return same(ends[0], ends[1]) or same(ends[0], ends[2])


def sum_and_longer(job: Job, chance: random.Random) -> str:
    """Equal answers, weights that take no time: on-policy a step takes generation and training, one
    step off the longer of both."""
    equal: dict[str, Any] = {
        "reinforcement.staleness": 0.0, "reinforcement.oversample": 0.0,
        "reinforcement.filtered": 0.0, "reinforcement.chunk": 0, "reinforcement.swap": "drain",
        "reinforcement.concurrent": 0, "reinforcement.collected": 0.0,
        "reinforcement.parked": [],
        "reinforcement.prompt": {"law": "constant", "value": 50, "cap": 64},
        "reinforcement.answer": {"law": "constant", "value": 200, "cap": 300},
    }  # fmt: skip
    whole = job.document["reinforcement"]["prompts"] * job.document["reinforcement"]["answers"]
    job = job.but({"plan.global_batch": whole})

    def last(training: float, staleness: float) -> float:
        off = {"reinforcement.staleness": staleness}
        step = _played(_set_up(job, equal | off), training).steps[-1]
        return step.end - step.begin

    alone = last(0.0, 0.0)
    training = alone * chance.choice((0.3, 1.0, 2.5))
    turns, beside = last(training, 0.0), last(training, 1.0)
    if abs(turns - alone - training) > 1e-6 * turns:
        return f"{turns!r} in turns, {alone!r} and {training!r} alone"
    longer = max(alone, training)
    near = longer * (1.0 - 1e-9) <= beside <= longer * (1.0 + _INSTANT)
    return "" if near else f"{beside!r} one step off, {alone!r} and {training!r} alone"


def partial_rollouts(job: Job, chance: random.Random) -> str:
    """Answers that go on under new weights are never lost."""
    going = {
        "reinforcement.swap": "continue", "reinforcement.staleness": chance.choice((0.5, 1.0, 2.0)),
        "reinforcement.oversample": 0.0, "reinforcement.filtered": 0.0,
    }  # fmt: skip
    lost = _played(_set_up(job, going), 0.2).rollouts.counts.lost
    return f"{lost} tokens are lost" if lost else ""


def places(job: Job, chance: random.Random) -> str:
    """No more groups are written at once than there are places; fewer places are not faster."""
    own: dict[str, Any] = job.document["reinforcement"]
    few = chance.randint(1, own["prompts"])
    loops = [_played(_set_up(job, {"reinforcement.concurrent": n}), 0.2) for n in (few, 0)]
    most = max(count for _, count in loops[0].rollouts.levels)
    if most > few * own["answers"]:
        return f"{most} answers at once in {few} places of {own['answers']}"
    ends = [loop.steps[0].end for loop in loops]
    if own.get("filtered") or own.get("oversample") or ends[1] <= ends[0] * (1.0 + _INSTANT):
        return ""
    return f"{ends[0]!r} in {few} places, {ends[1]!r} in as many as groups"


LAWS = {
    "servers write the tokens that were drawn": (SERVERS, tokens_of_answers),
    "more servers are not slower": (SERVERS, more_servers),
    "a cache holds what a hand counts": (SERVERS, cache_by_hand),
    "each token is learnt from, lost or there": (LOOPS, tokens_are_kept),
    "without staleness a loop is on-policy": (LOOPS, on_policy),
    "turns take the sum, one step off the longer": (LOOPS, sum_and_longer),
    "partial rollouts lose nothing": (LOOPS, partial_rollouts),
    "groups find no more places than there are": (LOOPS, places),
}
