"""Layers with experts: sizes and FLOPs in closed form, imbalance, refusals."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.config.errors import InputError
from sim.model import counts
from sim.model import precision as recipes
from sim.model.block import Block, block
from sim.model.execution import DENSE, EXPERTS
from sim.model.experts.routing import Routing, load_of, shares
from sim.model.fusion import Fusion
from sim.model.kernels import READ, Gemm, Item, Lag, MemoryBound
from sim.model.operators import kernels_of
from sim.model.transformer import Transformer
from sim.program.operations import Collective
from sim.program.routed import DEEPEP_SMS, Routed
from tests.model.test_block import run

E, K, H, F, S = 8, 2, 256, 512, 128


def mixture(**settings: Any) -> Transformer:
    return Transformer(
        tied_embeddings=True,
        name="mixture", layers=2, hidden=H, heads=4, ffn=F, vocab=1000, seq=S, gated_mlp=True,
        bias=False, dropout=False, attention="flash", positions="rotary", normalisation="rmsnorm",
        pattern="experts",
        blocks={"experts": {"experts": E, "top_k": K, "ffn": F} | settings},
    )  # fmt: skip


def layer(model: Transformer, **sharding: Any) -> Block:
    own = replace(counts.whole(model, 1).sharding, **sharding)
    return block("experts", run(model, sharding=own))


def flops(items: tuple[Item, ...], word: str) -> float:
    return sum(k.flops for k in kernels_of(items) if isinstance(k, Gemm) and word in k.name)


def calls(items: tuple[Item, ...], kind: str) -> list[Collective]:
    return [item for item in items if isinstance(item, Collective) and item.kind == kind]


def test_every_token_is_multiplied_by_its_experts_only() -> None:
    one = layer(mixture())
    assert flops(one.forward, "expert") == 2 * S * K * 3 * H * F
    assert flops(one.backward, "expert") == 2 * flops(one.forward, "expert")
    assert flops(one.forward, "router") == 2 * S * H * E


def test_experts_with_a_latent_see_and_are_sent_its_columns_alone() -> None:
    narrow = layer(mixture(latent=H // 4), ep=2, experts=("dp",))
    wide = layer(mixture(), ep=2, experts=("dp",))
    assert flops(narrow.forward, "expert") == flops(wide.forward, "expert") / 4
    assert flops(narrow.forward, "latent") == 2 * S * 2 * H * (H // 4)
    assert flops(narrow.forward, "router") == flops(wide.forward, "router")
    sent, usual = (calls(each.forward, "all_to_all") for each in (narrow, wide))
    assert [call.bytes for call in sent] == [call.bytes / 4 for call in usual]


@pytest.mark.parametrize(("ep", "etp"), [(1, 1), (2, 1), (8, 1), (4, 2)])
def test_the_experts_of_a_layer_are_divided(ep: int, etp: int) -> None:
    own = layer(mixture(), ep=ep, etp=etp, experts=("dp",), expert_tensor=("tp",))
    assert own.parameters[EXPERTS] == E * 3 * H * F / (ep * etp)
    assert own.parameters[DENSE] == layer(mixture()).parameters[DENSE]
    # Each rank computes as much as it sends out, as all others do.
    assert flops(own.forward, "expert") == 2 * S * K * 3 * H * F


def test_a_balanced_all_to_all_moves_each_token_to_each_of_its_experts() -> None:
    one = layer(mixture(), ep=4, experts=("dp",))
    out, home = calls(one.forward, "all_to_all")
    assert out.bytes == home.bytes == S * K * H * 2
    assert [call.bytes for call in calls(one.backward, "all_to_all")] == [S * K * H * 2] * 2


def test_routed_tokens_leave_once() -> None:
    model = mixture()
    own = replace(counts.whole(model, 1).sharding, ep=4, experts=("dp",))
    one = block("experts", run(model, sharding=own, dispatcher="hierarchical"))
    out, _ = calls(one.forward, "all_to_all")
    assert out.bytes == S * H * 2
    assert out.routed is not None
    assert (out.routed.choices, out.routed.among, out.routed.sms) == (K, E, 0)
    deep = block("experts", run(model, sharding=own, dispatcher="deepep"))
    first, back = calls(deep.forward, "all_to_all")
    assert first.routed == replace(out.routed, sms=DEEPEP_SMS), "its kernels have SMs, as measured"
    assert (first.bytes, back.bytes) == (out.bytes, out.bytes)


def test_experts_in_turn_need_no_router_and_few_ranks() -> None:
    """Eight of 256 experts in turn lie on one node of eight and on two ranks of 64."""
    model = mixture(routing={"law": "round-robin"})
    own = replace(counts.whole(model, 1).sharding, ep=4, experts=("dp",))
    one, routed = (
        block("experts", run(other, sharding=own, dispatcher="hierarchical"))
        for other in (model, mixture())
    )
    assert flops(one.forward, "router") == 0 < flops(routed.forward, "router")
    assert flops(one.forward, "expert") == flops(routed.forward, "expert")
    turned = calls(one.forward, "all_to_all")[0].routed
    assert turned is not None
    assert turned.reached(4) == 1.0, "two neighbours on a rank that has two"
    for choices, among in ((8, 256), (8, 128), (4, 128), (6, 64), (3, 8)):
        for parts in (1, 2, 4, 8):
            size, chosen = among // parts, range(choices)
            ranks = [
                len({(token * choices + i) % among // size for i in chosen})
                for token in range(among)
            ]
            turned = Routed(choices=choices, among=among, in_turn=True)
            assert turned.reached(parts) == pytest.approx(sum(ranks) / among)


def test_tokens_that_leave_in_eight_bits_are_cast_once_each_and_arrive_so() -> None:
    """DeepSeek-V3: cast, sent, then sorted and multiplied as they came; results go home in bf16."""
    recipe = recipes.load("deepseek")
    own = replace(counts.whole(mixture(), 1).sharding, ep=4, experts=("dp",))
    one = block("experts", replace(run(mixture(), sharding=own), recipe=recipe))
    out, home = calls(one.forward, "all_to_all")
    assert (out.bytes, home.bytes) == (S * K * H * recipe.element, S * K * H * 2)
    moved = {kernel.name: kernel.bytes for kernel in kernels_of((*one.forward, *one.backward))}
    assert moved["dispatch cast"] == moved["combine grad cast"] == S * H * (2 + recipe.element)
    # What the other product takes is made of what came.
    assert moved["expert in input cast"] == moved["expert out grad cast"]
    assert moved["expert in input cast"] == S * K * H * 2 * recipe.element
    assert moved["sort"] == S * K * H * 2 * recipe.element
    assert moved["unsort"] == S * K * H * 2 * 2


def test_shared_experts_are_a_feed_forward_block_of_their_width() -> None:
    shared, plain = layer(mixture(shared=2)), layer(mixture())
    assert shared.count - plain.count == 3 * H * 2 * F
    assert flops(shared.forward, "shared expert") == 2 * S * 3 * H * 2 * F


def test_a_skewed_layer_waits_for_its_fullest_rank() -> None:
    skewed = layer(mixture(routing={"law": "zipf", "exponent": 1.0}), ep=8, experts=("dp",))
    lags = [item for item in skewed.forward if isinstance(item, Lag)]
    largest = 1 / sum(1 / i for i in range(1, E + 1))
    gemm, fullest = lags[0].own[0], lags[0].fullest[0]
    assert isinstance(gemm, Gemm)
    assert isinstance(fullest, Gemm)
    assert fullest.m / gemm.m == pytest.approx(largest * E, rel=0.01)
    late = [
        call for call in calls(skewed.forward, "all_to_all") if call.cause == "expert imbalance"
    ]
    assert sum(call.bytes for call in late) == pytest.approx(2 * (largest * E - 1) * S * K * H * 2)


def test_a_capacity_drops_what_is_beyond_it_and_computes_all_slots() -> None:
    law = Routing(law="zipf")
    load = load_of(law, experts=8, ranks=8, capacity=1.0)
    share = sorted(shares(law, 8, None, 1), reverse=True)
    assert (load.mean, load.fullest) == (1.0, 1.0)
    assert load.dropped == pytest.approx(sum(max(p - 1 / 8, 0.0) for p in share))
    assert load_of(Routing(), experts=8, ranks=8, capacity=1.25).dropped == 0.0
    padded = layer(mixture(capacity=1.25))
    assert flops(padded.forward, "expert") == 1.25 * flops(layer(mixture()).forward, "expert")


@pytest.mark.parametrize("law", ["balanced", "zipf", "dirichlet"])
def test_shares_are_a_distribution_and_fuller_ranks_are_at_least_even(law: Any) -> None:
    routing = Routing(law=law, alpha=0.5 if law == "dirichlet" else 1.0)
    share = shares(routing, 64, 3, 8)
    assert share.sum() == pytest.approx(1.0)
    assert share.min() >= 0.0
    loads = [load_of(routing, experts=64, ranks=ranks, layer=3).fullest for ranks in (1, 8, 64)]
    assert loads == sorted(loads)
    assert loads[0] == pytest.approx(1.0)


def test_counts_of_a_file_are_the_loads(tmp_path: Path) -> None:
    counted = tmp_path / "counts.csv"
    counted.write_text("1,1,1,1,1,1,1,1\n8,0,0,0,0,0,0,0\n")
    routing = Routing(law="file", file=str(counted))
    loads = [load_of(routing, experts=8, ranks=4, layer=i, layers=2).fullest for i in (0, 1)]
    assert loads == [1.0, 4.0]
    with pytest.raises(InputError, match="2 rows of 8 counts; write 3 rows"):
        load_of(routing, experts=8, ranks=4, layer=0, layers=3)
    counted.write_text("1,1,1,1,1,1,1,1\n4,4,0,0,0,0,0,0\n")
    assert load_of(routing, experts=8, ranks=8, layer=1, layers=2).fullest == 4.0
    counted.write_text("1,1,1,1,1,1,1,1\n1,1,1,1,1,1,1,1\n")
    assert load_of(routing, experts=8, ranks=8, layer=1, layers=2).fullest == 1.0
    counted.write_text("")
    with pytest.raises(InputError, match="no data"):
        load_of(routing, experts=8, ranks=4, layer=2, layers=3)
    with pytest.raises(InputError, match="set numbered = true"):
        load_of(routing, experts=8, ranks=4, layers=2)


@pytest.mark.parametrize(
    ("settings", "sharding", "message"),
    [
        ({}, {"ep": 3}, "ep = 3 does not divide experts = 8"),
        ({}, {"etp": 3}, "etp = 3 does not divide ffn = 512"),
        ({}, {"tp": 2}, "plan, sequence_parallel: .*; set it to true"),
        ({"top_k": 9}, {}, "top_k = 9 of 8 experts"),
        ({"capacity": -1.0}, {}, "capacity = -1.0"),
        ({"groups": 3}, {}, "groups = 3, limit = 0 for 8 experts"),
        ({"routing": {"law": "zipf", "exponent": -1.0}}, {}, "exponent = -1.0"),
        ({"routing": {"law": "file"}}, {}, "do not go together"),
        ({"groups": 8, "limit": 1}, {}, "top_k = 2 of 1 groups of 1"),
        ({"routing": {"law": "zipf", "seed": -1}}, {}, "seed = -1 must not be negative"),
        ({"routing": {"exponent": 0.5}}, {}, "exponent = 0.5 with law = .balanced."),
        (
            {"routing": {"law": "zipf", "alpha": 2.0}},
            {},
            "set law = .dirichlet. or leave alpha out",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    settings: dict[str, Any], sharding: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        layer(mixture(**settings), **sharding)


def test_limits_of_a_gate_take_kernels_of_their_own_unless_they_are_fused() -> None:
    """Eight passes of each gated row forward, fifteen back in bf16, and a copy that is kept; a host
    that reads what the device has made waits once more."""
    free, limited = mixture(), replace(mixture(), glu_limit=7.0)
    eager, fused = Fusion(swiglu=True), Fusion(swiglu=True, clamp=True)
    own = {
        (model.glu_limit, fusion.clamp): block("experts", run(model, fusion=fusion))
        for model in (free, limited)
        for fusion in (eager, fused)
    }
    plain, apart = own[0.0, False], own[7.0, False]
    assert own[7.0, True].forward == plain.forward == own[0.0, True].forward
    row = S * K * F * 2
    assert moved(apart.forward) - moved(plain.forward) == 8 * row
    assert moved(apart.backward) - moved(plain.backward) == 15 * row
    assert apart.saved - plain.saved == 2 * row
    reads = block("experts", run(limited, fusion=replace(eager, host_counts=True))).forward
    assert reads.count(READ) == 2


def moved(items: tuple[Item, ...]) -> float:
    return sum(kernel.bytes for kernel in kernels_of(items) if isinstance(kernel, MemoryBound))


def test_biases_that_products_do_not_add_have_kernels_for_each_expert() -> None:
    """`_apply_bias` of Megatron-LM behind the second product, in fp32, and of NeMo AutoModel behind
    both: 28 and 8 bytes an element forward in bf16."""
    biased = replace(mixture(), bias=True)
    fusion = Fusion(swiglu=True, bias_in_gemm=True)
    own = {
        ways: block("experts", run(biased, fusion=replace(fusion, expert_bias=ways)))
        for ways in ("both", "first", "none")
    }
    first, second = (moved(own[ways].forward) for ways in ("first", "none"))
    assert first - moved(own["both"].forward) == 28 * S * K * H
    assert second - first == 4 * S * K * 2 * F * 2
    launched = {ways: sum(k.launches for k in kernels_of(own[ways].forward)) for ways in own}
    assert launched["none"] - launched["first"] == E + 1


def test_gradients_of_an_fp32_router_cast_its_operands_and_results() -> None:
    """RouterGatingLinearFunction: the same products, of fp32 operands, and two casts of 6 bytes."""
    usual = Fusion(swiglu=True)
    low, wide = (
        block("experts", run(mixture(), fusion=fusion, precision="bf16"))
        for fusion in (usual, replace(usual, router_fp32=True))
    )
    assert wide.forward == low.forward
    assert flops(wide.backward, "router") == flops(low.backward, "router")
    assert {k.precision for k in kernels_of(wide.backward) if "router" in k.name and
            isinstance(k, Gemm)} == {"tf32"}  # fmt: skip
    casts = [
        k for k in kernels_of(wide.backward) if k.name in ("router grad cast", "router input cast")
    ]
    assert sum(k.bytes for k in casts) == 2 * 6 * S * H
    assert {k.precision for k in kernels_of(low.backward) if isinstance(k, Gemm)} == {"bf16"}
