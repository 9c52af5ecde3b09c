"""What if: a grid of step times obeys the laws of the replay it is made of."""

from dataclasses import replace

import numpy as np
import pytest

from sim.analysis.explanation.what_if import MICROBATCH, SPEEDS, WhatIf, what_if
from sim.config.errors import InputError
from sim.config.readable import human_bytes
from sim.jobs.recorded.setup import RecordedScenario
from sim.kind import answer as play
from sim.kind import load, set_up
from sim.scenario.setup import from_scenario
from sim.simulate import answer
from tests.jobs.recorded.test_play import LAUNCH, REDUCE, recorded

LINKS = "bandwidth of all other transfers"


def grid_of(found: WhatIf) -> np.ndarray:
    return np.reshape(found.times, [len(knob.values) for knob in found.knobs])


def names_of(found: WhatIf) -> list[str]:
    return [knob.name for knob in found.knobs]


@pytest.mark.parametrize("name", ["megatron-3.6b", "gpt2-one-gpu", "llama2-7b-offload"])
def test_at_its_own_speed_a_step_is_as_simulated_and_nothing_faster_makes_it_longer(name):
    setup = from_scenario(load(name))
    found = what_if(setup)
    grid, own = grid_of(found), tuple(knob.own for knob in found.knobs)
    assert grid[own] == pytest.approx(answer(setup).step_time, rel=1e-6)
    for axis, knob in enumerate(found.knobs):
        if knob.name != MICROBATCH:
            assert (np.diff(grid, axis=axis) <= 1e-9 * grid.max()).all()
            assert grid.min(axis=axis).max() < grid.max(axis=axis).max()


def test_a_network_twice_as_fast_is_the_one_that_the_topology_would_have():
    apart = {"device.interference": 0.0}  # what kernels lose beside transfers is kept by replay
    found = what_if(
        from_scenario(load("llama2-70b-fsdp", {"network.bandwidth": "50 Gb/s", **apart}))
    )
    place = [knob.own for knob in found.knobs]
    place[names_of(found).index(LINKS)] = SPEEDS.index(2.0)
    fast = load("llama2-70b-fsdp", {"network.bandwidth": "100 Gb/s", **apart})
    step = answer(from_scenario(fast)).step_time
    assert grid_of(found)[tuple(place)] == pytest.approx(step, rel=0.01)


def test_another_microbatch_is_the_step_that_its_plan_has_and_says_what_it_needs():
    found = what_if(from_scenario(load("megatron-3.6b")))
    knob = found.knobs[0]
    assert knob.name == MICROBATCH
    own = int(knob.values[knob.own].split()[0])
    assert own == load("megatron-3.6b").plan.microbatch
    place = [one.own for one in found.knobs]
    for number, (value, note) in enumerate(zip(knob.values, knob.notes, strict=True)):
        size = int(value.split()[0])
        result = answer(from_scenario(load("megatron-3.6b", {"plan.microbatch": size})))
        place[0] = number
        assert grid_of(found)[tuple(place)] == pytest.approx(result.step_time, rel=1e-6)
        assert note.endswith(": fits" if result.fits else ": does not fit")
        assert note.startswith(human_bytes(result.memory_per_gpu["total"]))
    assert {size / own for size in (int(v.split()[0]) for v in knob.values)} >= {1.0, 0.5}


def test_layers_that_were_timed_as_a_whole_have_no_kernels_to_ask_of():
    with pytest.raises(InputError, match="timed as a whole"):
        what_if(from_scenario(load("pipedream-gnmt")))


def test_what_a_step_does_not_feel_is_no_knob():
    found = what_if(from_scenario(load("gpt2-one-gpu")), microbatches=False)
    assert names_of(found) == ["speed of the GPUs' kernels"]


def test_a_step_of_several_streams_is_played_at_each_speed():
    beside = [replace(LAUNCH, stream=1)] * 10
    script = recorded(*[LAUNCH] * 20, REDUCE, *beside, replace(LAUNCH, reads=(7,)))
    setup = set_up(RecordedScenario(record=(script,), topology="dgx-h100-ndr"))
    with pytest.raises(InputError):
        what_if(setup)
    found = what_if(setup, plays=100)
    grid, own = grid_of(found), tuple(knob.own for knob in found.knobs)
    assert grid.size <= 100
    assert grid[own] == pytest.approx(play(setup).step_time, rel=1e-6)
    for axis in range(grid.ndim):
        assert (np.diff(grid, axis=axis) <= 1e-9 * grid.max()).all()
