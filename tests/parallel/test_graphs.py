"""Launches: CUDA graphs take them away, a host that reads what was routed loses its lead."""

from typing import Any

import pytest

from sim import kind
from sim.config.errors import InputError
from sim.engine.columns.program import ColumnProgram
from sim.engine.fold import Folding
from sim.engine.play import play
from sim.model.operators import kernels_of
from sim.parallel.step import training_step
from sim.program.operations import Segment
from sim.scenario.setup import PlanSetup, from_scenario
from sim.simulate import answer

# Four layers of short sequences, which launches bind; `SLOW` ones a hundred times.
SMALL = {"gpus": 16, "plan.global_batch": 64, "plan.pp": 2, "plan.interleave": 2,
         "model.layers": 4, "model.seq": 512}  # fmt: skip
SLOW = {"stack.launch_forward": "600 us", "stack.launch_backward": "500 us"}
SCOPES = [
    ["attn"],
    ["moe_router"],
    ["attn", "moe_router"],
    ["attn", "moe_router", "moe_preprocess"],
    ["full_iteration"],
]


def setup(**changes: Any) -> PlanSetup:
    return from_scenario(kind.load("mixtral-8x7b", SMALL | changes))


def reads(job: PlanSetup) -> int:
    """How often the host waits for the device in a forward pass of a layer with experts."""
    items = job.job.work("experts", "F").flat()
    return sum(isinstance(item, Segment) and item.duration.waits for item in items)


@pytest.mark.parametrize("graphs", SCOPES, ids=str)
@pytest.mark.parametrize("slow", [{}, SLOW], ids=["as it is", "slow host"])
def test_a_graph_never_makes_a_step_slower(graphs: list[str], slow: dict[str, Any]) -> None:
    alone, captured = answer(setup(**slow)), answer(setup(**slow, **{"plan.cuda_graph": graphs}))
    assert captured.step_time <= alone.step_time * (1 + 1e-9)


def test_the_larger_a_graph_the_fewer_launches() -> None:
    times = [answer(setup(**SLOW, **{"plan.cuda_graph": graphs})).step_time for graphs in SCOPES]
    assert times[2] < min(times[0], times[1])
    assert times[3] < times[2]
    assert times[4] < 0.5 * times[3]


def test_a_graph_is_launched_once_a_pass() -> None:
    """Of attention, its host's seconds are those of one graph, and of what is behind it."""
    alone, captured = setup(), setup(**{"plan.cuda_graph": ["attn"]})
    block = alone.job.block("experts")
    attention = 5 + 3  # norm, qkv, queries copied, two of rotary; core, output, residual sum
    host = [
        sum(item.host for item in job.job.work("experts", "F").flat() if isinstance(item, Segment))
        for job in (alone, captured)
    ]
    stack = alone.job.stack
    assert block.forward
    longer = 2 * stack.operator_forward["product"] + stack.operator_forward["attention"]
    saved = attention * stack.launch_forward + longer - stack.launch_graph
    assert host[0] - host[1] == pytest.approx(saved, rel=1e-6)


def test_the_host_reads_what_was_routed_unless_it_is_known_or_nobody_asks() -> None:
    assert reads(setup()) == 1
    assert reads(setup(**{"model.blocks.experts.capacity": 1.0})) == 0
    assert reads(setup(**{"plan.cuda_graph": ["full_iteration"]})) == 0
    assert reads(setup(**{"stack.fusion.host_counts": False})) == 0


def test_reading_costs_a_slow_host_its_lead_and_an_infinitely_quick_one_nothing() -> None:
    costs = ("launch_forward", "launch_backward", "launch_collective", "launch_grouped")
    free = {f"stack.{cost}": "0 s" for cost in (*costs, "layer_forward", "layer_backward")}
    deaf = {"stack.fusion.host_counts": False}
    quick, told = answer(setup(**free)), answer(setup(**free, **deaf))
    assert quick.step_time == pytest.approx(told.step_time, rel=1e-9)
    assert answer(setup(**SLOW)).step_time > 1.01 * answer(setup(**SLOW, **deaf)).step_time


@pytest.mark.parametrize(
    "changes",
    [{}, SLOW, {"plan.overlap_experts": True},
     {"plan.pp": 1, "plan.interleave": 1, "plan.schedule": "1f1b"},
     {**SLOW, "plan.cuda_graph": ["attn", "moe_router"]}, {"plan.cuda_graph": ["full_iteration"]},
     {**SLOW, "plan.recompute": "full"}],
    ids=str,
)  # fmt: skip
def test_a_host_that_reads_is_played_alike_by_all_engines(changes: dict[str, Any]) -> None:
    job = setup(**changes)
    program = training_step(job.job)
    clock, quick = (play(program, job.machine, engine=engine) for engine in ("clock", "auto"))
    assert quick.end == pytest.approx(clock.end, rel=1e-9)
    folded, unfolded = answer(job), answer(job, unfold=True)
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)
    assert sum(folded.breakdown.values()) == pytest.approx(folded.step_time, rel=1e-6)


def test_replay_knows_that_a_host_reads() -> None:
    job = setup(**SLOW, **{"device.interference": 0.0})
    folding = Folding(training_step(job.job), job.machine)
    clock = play(training_step(job.job), job.machine, engine="clock")
    assert ColumnProgram(folding.folded()).time() == pytest.approx(clock.end, rel=1e-9)


def test_a_host_that_takes_twice_as_long_doubles_what_launches_bind() -> None:
    """Grace's: `host` of gb200.toml."""
    host = [
        sum(item.host for item in job.job.work("experts", "F").flat() if isinstance(item, Segment))
        for job in (setup(), setup(**{"device.host": 2.0}))
    ]
    assert host[1] == pytest.approx(2.0 * host[0], rel=1e-9)


def test_experts_that_know_their_tokens_on_the_device_fuse_what_is_between_their_products() -> None:
    """In one graph of a step, in blocks of eight bits: neither activation nor casts behind it."""
    eight = {"topology": "dgx-b200", "plan.precision": "fp8", "plan.recipe": "mxfp8"}
    whole = {"plan.cuda_graph": ["full_iteration"]}
    apart, fused = (
        [kernel.name for kernel in kernels_of((*block.forward, *block.backward))]
        for job in (setup(**eight), setup(**eight, **whole))
        for block in [job.job.block("experts")]
    )
    between = {"swiglu", "swiglu grad", "expert out input cast", "expert in grad cast"}
    assert between <= set(apart)
    assert set(apart) - set(fused) == between
    assert set(fused) <= set(apart)
    bf16 = setup(**whole).job.block("experts")
    assert "swiglu" in [kernel.name for kernel in kernels_of(bf16.forward)]


def test_megatron_adds_the_biases_of_experts_in_fp32_one_by_one() -> None:
    """68 bytes an element: 28 forward, 40 back, with what is kept in half precision."""
    job = from_scenario(kind.load("gpt-oss-120b"))
    block, run_ = job.job.block("experts"), job.job.execution
    rows = run_.rows * 4  # top 4, on as many ranks as they come from
    added = [k for k in kernels_of((*block.forward, *block.backward)) if "expert bias" in k.name]
    assert [k.name for k in added][::2] == ["expert bias product", "expert bias product grad"]
    assert [k.name for k in added][1::2] == ["expert bias", "expert bias grad"]
    assert sum(k.bytes for k in added) == pytest.approx(68.0 * rows * run_.model.hidden)


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        (["full_iteration", "attn"], "full_iteration already contains all passes"),
        (["moe_preprocess"], "continues the graph of moe_router"),
        (["atn"], "cuda_graph"),
    ],
)
def test_wrong_graphs_are_refused(graphs: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        setup(**{"plan.cuda_graph": graphs})
