"""Experts have a layout of their own on the ranks of a stage (Megatron-Core's parallel folding)."""

from typing import Any

import pytest

from sim import kind
from sim.config.errors import InputError
from sim.model.execution import DENSE, EXPERTS
from sim.parallel.mesh import Mesh, layouts
from sim.parallel.plan import Plan
from sim.parallel.state import gradient_axes
from sim.parallel.unsharded import divided
from sim.scenario.setup import PlanSetup, from_scenario
from sim.simulate import answer

SMALL = {"gpus": 64, "model.layers": 4, "plan.pp": 2, "plan.interleave": 1, "plan.schedule": "1f1b",
         "plan.global_batch": 64}  # fmt: skip
SEQUENCE = {"plan.sequence_parallel": True}


def setup(**changes: Any) -> PlanSetup:
    return from_scenario(kind.load("mixtral-8x7b", SMALL | changes))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"plan.dispatcher": "hierarchical"},
        {"plan.tp": 2} | SEQUENCE,
        {"plan.tp": 2, "plan.etp": 2, "plan.ep": 4} | SEQUENCE,
        {"plan.tp": 4, "plan.etp": 2, "plan.ep": 8} | SEQUENCE,
        {"plan.ep": 4, "plan.cp": 2},
        {"plan.zero": 3},
        {"plan.dp_replicate": 2},
        {"plan.order": "tp-cp-pp-dp"},
        {"model.blocks.experts.routing.law": "zipf"},
    ],
    ids=str,
)
def test_folded_equals_unfolded(changes: dict[str, Any]) -> None:
    job = setup(**changes)
    folded, unfolded = answer(job), answer(job, unfold=True)
    assert folded.roles < unfolded.roles == 64
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)
    assert sum(folded.breakdown.values()) == pytest.approx(folded.step_time, rel=1e-9)


def test_imbalance_is_a_line_of_its_own_and_nothing_else_changes() -> None:
    even, skewed = answer(setup()), answer(setup(**{"model.blocks.experts.routing.law": "zipf"}))
    assert "expert imbalance" not in even.breakdown
    assert skewed.breakdown["expert imbalance"] > 0.1 * skewed.step_time
    assert skewed.breakdown["compute"] == pytest.approx(even.breakdown["compute"], rel=1e-6)
    # The memory is that of the fullest rank.
    assert skewed.memory_per_gpu["activations"] > 1.5 * even.memory_per_gpu["activations"]


def test_dropped_tokens_are_reported() -> None:
    law = {"model.blocks.experts.routing.law": "zipf", "model.blocks.experts.capacity": 1.0}
    largest = [8 / i / sum(1 / k for k in range(1, 9)) for i in range(1, 9)]
    result = answer(setup(**law))
    assert result.dropped == pytest.approx(sum(max(load - 1, 0) for load in largest) / 8)
    assert "expert imbalance" not in result.breakdown
    assert "of the copies of tokens for experts" in str(result)
    assert answer(setup()).dropped == 0.0


@pytest.mark.parametrize(
    ("dense", "experts", "mesh"),
    [
        ({"tp": 2, "cp": 1, "dp": 4}, (1, 8), {"tp": 2, "cp": 1, "dp": 4}),
        ({"tp": 2, "dp": 8}, (1, 8), {"tp": 2, "dp.1": 4, "dp.2": 2}),
        ({"tp": 8, "dp": 8}, (2, 16), {"tp.1": 2, "tp.2": 4, "dp.1": 4, "dp.2": 2}),
        ({"tp": 4, "pp": 2, "dp": 4}, (1, 8), {"tp": 4, "pp": 2, "dp.1": 2, "dp.2": 2}),
    ],
)
def test_the_mesh_refines_both_layouts(
    dense: dict[str, int], experts: tuple[int, int], mesh: dict[str, int]
) -> None:
    two = layouts(tuple(dense.items()), (("etp", experts[0]), ("ep", experts[1])))
    assert two.mesh == mesh
    assert Mesh(axes=two.mesh).size == Mesh(axes=dense).size
    for axis, size in {**dense, "etp": experts[0], "ep": experts[1]}.items():
        assert Mesh(axes={part: two.mesh[part] for part in two.parts[axis]}).size == size


def test_gradients_of_experts_are_summed_over_the_ranks_that_hold_the_same_ones() -> None:
    plan = Plan(global_batch=64, tp=2, cp=2, dp=8, ep=8)
    assert plan.degree(gradient_axes(plan, DENSE)) == 16
    assert plan.degree(gradient_axes(plan, EXPERTS)) == 32 // 8


def test_experts_that_one_rank_holds_are_neither_gathered_nor_whole_beside_their_shards() -> None:
    own = {"stack": "nemo-automodel-fsdp2", "plan.pp": 1, "plan.zero": 3, "gpus": 8}
    alone, four = (setup(**own, **{"plan.ep": ep}).job for ep in (8, 2))
    layer = alone.block("experts")
    assert divided(alone, [layer]) == {DENSE: layer.parameters[DENSE]}
    assert divided(four, [four.block("experts")]).keys() == {DENSE, EXPERTS}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan.ep": 3}, "experts on 3 neighbouring ranks do not divide dp = 32 evenly"),
        ({"plan.ep": 64}, "ep = 64 but a stage has 32 ranks"),
        ({"plan.ep": 16, "plan.dp_replicate": 4}, "exceeds the ranks that ZeRO shards over"),
        ({"plan.ep": 16}, "ep = 16 does not divide experts = 8"),
        ({"model": "llama2-7b"}, "has no experts"),
        ({"model": "llama2-7b", "plan.ep": 1, "plan.dispatcher": "flat"}, "leave dispatcher out"),
        ({"model": "llama2-7b", "plan.ep": 1, "plan.overlap_experts": True}, "has no experts"),
        ({"model": "llama2-7b", "plan.ep": 1, "plan.overlap_shared": True}, "has no experts"),
        ({"plan.overlap_shared": True}, "has no shared experts; leave overlap_shared out"),
        (
            {
                "plan.overlap_shared": True,
                "plan.overlap_experts": True,
                "model.blocks.experts.shared": 1,
            },
            "passes of other microbatches run beside",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_divided_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        answer(setup(**changes))
