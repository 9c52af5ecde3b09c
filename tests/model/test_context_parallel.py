"""Context parallelism: bytes and FLOPs of rings, all-gathers, exchanges for heads and products."""

from dataclasses import replace
from typing import Any

import pytest

import sim
from sim.config.errors import InputError
from sim.kind import load
from sim.model import attention
from sim.model.attention import core, cores
from sim.model.checkpointing import Rule
from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.kernels import Attention, Item, Overlap
from sim.model.operators import Items
from sim.model.recompute import recomputed
from sim.model.transformer import Transformer
from sim.program.operations import Collective

SEQ, HEADS, KV, HEAD, WIDTH = 4096, 16, 4, 64, 2
MODEL = Transformer(
    tied_embeddings=True,
    layers=2,
    hidden=HEADS * HEAD,
    heads=HEADS,
    kv_heads=KV,
    ffn=4096,
    vocab=1000,
    seq=SEQ,
    attention="flash",
)


def run(**sharding: Any) -> Execution:
    sharding.setdefault("ulysses", 1)
    return Execution(
        model=MODEL, microbatch=3, sharding=Sharding(**sharding), precision="bf16", fusion=Fusion()
    )


WAYS = {
    "ring": {"cp": 8},
    "gathered-ring": {"cp": 8, "way": "gathered-ring"},
    "all-gather": {"cp": 8, "way": "all-gather"},
    "ulysses": {"cp": 8, "ulysses": 8, "context": (), "exchanged": ("cp",)},
    "product": {"cp": 8, "ulysses": 2, "exchanged": ("ulysses",)},
}


def unpacked(items: Items) -> list[Item]:
    return [
        part
        for item in items
        for part in ((item.collective, *item.kernels) if isinstance(item, Overlap) else (item,))
    ]


def flops(items: Items) -> float:
    return sum(item.flops for item in unpacked(items) if isinstance(item, Attention))


def volumes(items: Items) -> dict[str, float]:
    """Bytes by kind of collective."""
    found: dict[str, float] = {}
    for item in unpacked(items):
        if isinstance(item, Collective):
            found[item.kind] = found.get(item.kind, 0.0) + item.bytes
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_balanced_rank_does_its_share_of_the_triangle(way):
    whole, part = core(run()), core(run(**WAYS[way]))
    assert flops(part.forward) == pytest.approx(flops(whole.forward) / 8)
    assert flops(part.input_gradient) == pytest.approx(flops(whole.input_gradient) / 8)


@pytest.mark.parametrize("way", ["ring", "gathered-ring", "all-gather"])
@pytest.mark.parametrize("cp", [2, 4, 8])
def test_the_last_of_contiguous_shares_does_nearly_twice_the_mean(way, cp):
    balanced, last = (
        core(run(**{**WAYS[way], "cp": cp, "balanced": balanced})) for balanced in (True, False)
    )
    assert flops(last.forward) / flops(balanced.forward) == pytest.approx(2 - 1 / cp)


KEYS = 3 * SEQ * 2 * KV * HEAD * WIDTH
QUERIES = 3 * SEQ * HEADS * HEAD * WIDTH


def test_rings_and_gathers_bring_all_keys_and_take_their_gradients_home():
    for way in ("ring", "all-gather"):
        operator = core(run(**WAYS[way]))
        assert volumes(operator.forward) == {"all_gather": KEYS}
        assert volumes(operator.input_gradient) == {"all_gather": KEYS, "reduce_scatter": KEYS}


def test_torchs_ring_gathers_keys_once_and_takes_their_gradients_all_the_way_round_in_fp32():
    operator = core(run(**WAYS["gathered-ring"]))
    assert volumes(operator.forward) == {"all_gather": KEYS}
    back = volumes(operator.input_gradient)
    assert back["all_gather"] == KEYS
    # Through a port a reduce-scatter of S bytes takes 7 S / 8: eight shifts of an eighth in fp32.
    assert back["reduce_scatter"] * 7 / 8 == pytest.approx(8 * (KEYS / 8) * 4 / WIDTH)


def test_torchs_ring_is_hidden_beside_kernels_unless_compiled():
    eager = run(**WAYS["gathered-ring"])
    compiled = replace(eager, fusion=Fusion(compiled=True))
    one, other = core(eager), core(compiled)
    assert sum(isinstance(item, Overlap) for item in one.forward) == 1
    assert sum(isinstance(item, Overlap) for item in one.input_gradient) == 8
    assert not any(isinstance(i, Overlap) for i in (*other.forward, *other.input_gradient))
    assert flops(one.input_gradient) == flops(other.input_gradient)


def test_compiled_torchs_ring_gathers_keys_and_values_for_both_passes_and_keeps_them():
    eager = run(**WAYS["gathered-ring"])
    (whole,) = cores(eager)
    ahead, own = cores(replace(eager, fusion=Fusion(compiled=True)))
    assert volumes(whole.forward)["all_gather"] == volumes(whole.input_gradient)["all_gather"]
    assert volumes(ahead.forward) == {"all_gather": KEYS}
    assert ahead.saved == ahead.made == KEYS
    assert "all_gather" not in volumes((*own.forward, *own.input_gradient))
    kept = recomputed((ahead, own), Rule())
    again = recomputed((ahead, own), Rule(again=("full",)))
    assert "all_gather" not in volumes(kept.items)
    assert volumes(again.items) == {"all_gather": KEYS}
    assert kept.kept - again.kept >= KEYS


def test_operation_by_operation_a_merge_of_torchs_ring_is_three_passes_in_fp32():
    operator = core(run(**WAYS["gathered-ring"]))
    (merge,) = (one for one in operator.forward if getattr(one, "name", "") == "merge outputs")
    element = 8 * (2 + 4) + (4 + 2) + 7 * (12 + 8 + 12)  # casts, the cast back, seven merges
    assert merge.bytes == element * QUERIES / WIDTH / 8
    assert merge.launches == 8 + 1 + 7 * (3 + 5)


def test_repeated_keys_are_as_many_as_queries_and_are_copied_before():
    few = run(**WAYS["gathered-ring"])
    many = replace(few, fusion=Fusion(repeated_keys=True))
    blocks = [
        {one.name: one for one in attention.operators(execution)} for execution in (few, many)
    ]
    assert "repeat keys" not in blocks[0]
    (copy,) = blocks[1]["repeat keys"].forward
    assert copy.bytes == 3 * SEQ / 8 * 2 * (KV + HEADS) * HEAD * WIDTH
    gathered = [volumes(one["attention core"].forward)["all_gather"] for one in blocks]
    assert gathered == [KEYS, KEYS * HEADS / KV]
    assert flops(blocks[0]["attention core"].forward) == flops(blocks[1]["attention core"].forward)


def test_ulysses_exchanges_a_share_of_every_tensor_once_each_way():
    # Eight ranks and four heads of keys: each head of them goes to two ranks.
    operator = core(run(**WAYS["ulysses"]))
    moved = (2 * QUERIES + 2 * KEYS) / 8
    assert volumes(operator.forward) == {"all_to_all": pytest.approx(moved)}
    assert volumes(operator.input_gradient) == {"all_to_all": pytest.approx(moved)}


def test_the_product_has_a_ring_of_fewer_heads_and_smaller_exchanges():
    operator = core(run(**WAYS["product"]))
    assert volumes(operator.forward) == {
        "all_to_all": pytest.approx((2 * QUERIES + KEYS) / 8),
        "all_gather": pytest.approx(KEYS / 2),
    }


def test_a_ring_hides_what_an_all_gather_shows():
    ring, gathered = (core(run(**WAYS[way])).forward for way in ("ring", "all-gather"))
    assert isinstance(ring[0], Overlap)
    assert isinstance(gathered[0], Collective)


@pytest.mark.parametrize(
    ("sharding", "said"),
    [
        ({"cp": 32, "ulysses": 32}, "ulysses = 32 does not divide the 16 heads"),
        ({"cp": 4096}, "no two equal shares"),
    ],
)
def test_what_does_not_divide_is_refused(sharding, said):
    with pytest.raises(InputError, match=said):
        run(**sharding)


def step(stack: str = "megatron-core", **plan: Any) -> float:
    base = load("llama3-8b-long-context")
    return sim.run(replace(base, stack=stack, plan=replace(base.plan, **plan))).step_time


def test_ways_are_plans_and_stacks_have_one_of_their_own():
    assert step(context="ring") == step()
    times = {context: step(context=context) for context in ("ring", "all-gather", "ulysses")}
    assert len(set(times.values())) == 3
    product = step(cp=4, axes={"ulysses": 2})
    assert product == pytest.approx(times["ring"], rel=0.1)
    whole = step(cp=1, axes={"ulysses": 8})
    assert whole == pytest.approx(times["ulysses"], rel=1e-9)
