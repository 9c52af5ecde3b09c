"""Recomputation of some layers only: whose input is kept, what runs again and when."""

from dataclasses import replace

import pytest

from sim import kind, run
from sim.config.errors import InputError
from sim.model.block import ALONE, NOT
from sim.parallel.job import Job
from sim.parallel.memory import memories
from sim.parallel.step import training_step
from sim.scenario import setup
from sim.scenario.scenario import Scenario

GPT = kind.load("gpt3-175b-megatron")  # 96 layers on 8 stages, full recomputation
GPT = replace(GPT, plan=replace(GPT.plan, interleave=1, schedule="1f1b"))


def job(**plan: object) -> Job:
    changed = replace(GPT, plan=replace(GPT.plan, **plan))
    return setup.from_scenario(changed).job


def activations(own: Job) -> float:
    """Bytes that one forward pass leaves on the second stage."""
    return sum(block.saved for chunk in own.chunks[1] for block in own.blocks(chunk))


def again(own: Job) -> int:
    """Layers of the second stage that run again, by the products of the first."""
    each = len(own.block("dense", ALONE).recompute)
    (blocks,) = [list(own.blocks(chunk)) for chunk in own.chunks[1]]
    return sum(len(block.recompute) for block in blocks) // each


def by_layers(method: str, layers: int, **plan: object) -> Job:
    return job(recompute="full", recompute_method=method, recompute_layers=layers, **plan)


@pytest.mark.parametrize("layers", [1, 5, 12])
def test_block_runs_the_first_layers_of_each_stage_again(layers) -> None:
    own = by_layers("block", layers)
    full, none = own.block("dense", ALONE).saved, own.block("dense", NOT).saved
    count = min(layers, 12)
    assert activations(own) == count * full + (12 - count) * none
    assert again(own) == count


@pytest.mark.parametrize("layers", [1, 2, 5, 12])
def test_uniform_keeps_the_input_of_every_unit_and_runs_all_layers_again(layers) -> None:
    own = by_layers("uniform", layers)
    units = -(-12 // layers)
    assert activations(own) == units * own.block("dense", ALONE).saved
    assert again(own) == 12


def test_every_nth_layer_is_counted_over_the_whole_model() -> None:
    own = by_layers("every", 5)
    chosen = [slot[1] == ALONE for chunks in own.chunks for chunk in chunks for slot in chunk.slots]
    layers = chosen[1:-1]  # between embedding and head
    assert [number for number, one in enumerate(layers, 1) if one] == list(range(5, 97, 5))


def test_units_of_one_layer_are_full_recomputation() -> None:
    one, full = by_layers("uniform", 1), job()
    assert one.chunks == full.chunks


@pytest.mark.parametrize("layers", [2, 3, 12])
def test_a_unit_is_there_again_while_its_last_layers_run_backward(layers) -> None:
    """What a unit's backward passes free is what its forward pass has left; in between all of its
    activations are there at once."""
    own = by_layers("uniform", layers)
    (chunk,) = own.chunks[1]
    blocks = list(own.blocks(chunk))
    assert sum(block.freed for block in blocks) == pytest.approx(activations(own))
    whole = own.block("dense", NOT).saved
    last = blocks[layers - 1]
    kept = own.block("dense", ALONE).saved
    assert last.saved - last.freed + kept == pytest.approx((layers - 1) * whole)


def test_memory_and_time_go_opposite_ways() -> None:
    """The fewer layers run again, the faster the step and the more memory it takes."""
    results = [by_layers("block", layers) for layers in (2, 6, 10)]
    taken = [max(one.total for one in memories(own, training_step(own))) for own in results]
    assert taken == sorted(taken, reverse=True)
    times = [run(_scenario(layers)).step_time for layers in (2, 6, 10)]
    assert times == sorted(times)


def _scenario(layers: int) -> Scenario:
    plan = replace(GPT.plan, recompute_method="block", recompute_layers=layers)
    return replace(GPT, plan=plan)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"recompute_layers": 2}, "recompute_layers without recompute_method"),
        ({"recompute_method": "block"}, "recompute_method without recompute_layers"),
        (
            {"recompute_method": "block", "recompute_layers": 2, "recompute": "none"},
            "recompute_method with recompute = 'none'",
        ),
        (
            {"recompute_method": "uniform", "recompute_layers": 2, "recompute": ("mlp",)},
            "recompute_method = 'uniform' with",
        ),
    ],
)
def test_a_method_needs_layers_and_something_to_run_again(plan, said) -> None:
    with pytest.raises(InputError, match=said):
        job(**plan)
