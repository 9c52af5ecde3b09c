"""Recipes of eight and four bits: which products, which bytes, what is kept and what is sent."""

from dataclasses import replace

import pytest

from sim.config import catalog
from sim.model import reading
from sim.model.block import block
from sim.model.execution import Execution
from sim.model.fusion import Norms
from sim.model.kernels import Attention, Gemm, MemoryBound
from sim.model.lora import Lora
from sim.model.operators import kernels_of
from sim.model.precision import Recipe, load
from sim.program.operations import Collective
from tests.model.executions import fused

MODEL = reading.load("llama3-8b")
NAMES = catalog.names("topologies/recipes")


def run(recipe: Recipe | None, **sharding) -> Execution:
    return fused(MODEL, recipe=recipe, **sharding)


def fitted(name: str, *, transposes: bool = False, sharded: bool = False) -> Recipe:
    return load(name).fitted(transposes=transposes, sharded=sharded)


def moved(items, word: str) -> float:
    return sum(k.bytes for k in kernels_of(items) if word in k.name)


def elements(pass_: str) -> int:
    """Elements of the inputs (forward) or of the output gradients of a layer's four linears."""
    h, kv, ffn = MODEL.hidden, MODEL.kv_width, MODEL.ffn
    columns = 3 * h + ffn if pass_ == "forward" else (h + 2 * kv) + h + 2 * ffn + h
    return MODEL.seq * columns


@pytest.mark.parametrize("name", NAMES)
def test_linear_products_run_in_the_recipe_attention_and_head_do_not(name: str) -> None:
    recipe = load(name)
    layer, head = block("dense", run(recipe)), block("head", run(recipe))
    gemms = [k for k in kernels_of((*layer.forward, *layer.backward)) if isinstance(k, Gemm)]
    assert {gemm.precision for gemm in gemms} == {recipe.precision}
    others = [k for k in kernels_of(layer.forward) if isinstance(k, Attention)]
    others += [k for k in kernels_of((*head.forward, *head.backward)) if isinstance(k, Gemm)]
    assert {kernel.precision for kernel in others} == {"bf16"}


def test_attention_in_eight_bits_reads_casts_and_keeps_nothing_wider() -> None:
    """Q, K, V read in bf16 and written in eight bits, the output back; backward its gradient and
    those of Q, K and V. Context parallelism sends half the bytes."""
    plain, low = (replace(load("delayed-scaling"), attention=on) for on in (False, True))
    one, own = block("dense", run(plain)), block("dense", run(low))
    cores = [k for k in kernels_of((*own.forward, *own.backward)) if isinstance(k, Attention)]
    assert {core.precision for core in cores} == {"fp8"}
    rows, q, kv = MODEL.seq, MODEL.query_width, MODEL.kv_width
    for passes in ("forward", "backward"):
        more = sum(
            sign * sum(k.bytes for k in kernels_of(getattr(each, passes)) if k.family == "stream")
            for sign, each in ((1, own), (-1, one))
        )
        assert more == 3 * rows * (q + 2 * kv) + 3 * rows * q
    assert one.saved - own.saved == rows * (q + 2 * kv) + rows * q
    sent = [
        [item.bytes for item in block("dense", run(each, cp=2, way="all-gather")).forward
         if isinstance(item, Collective)]
        for each in (plain, low)
    ]  # fmt: skip
    assert sent[0] == [2 * size for size in sent[1]]


@pytest.mark.parametrize(
    ("name", "norms", "transposes", "less", "kernels"),
    [
        ("delayed-scaling", "cudnn", False, 2 + 2, 1),  # written and read in bf16
        ("delayed-scaling", "transformer-engine", True, 2 + 2 - 1, 0),  # and read to be turned
        ("current-scaling", "transformer-engine", False, 2, 3),  # the pass for the maximum
        ("current-scaling", "cudnn", False, 0, 0),
        ("mxfp8", "cudnn", False, 2 + 2 - 2 * 2 / 32, 1),  # scales are put into order,
        ("mxfp8", "transformer-engine", False, 0, 0),
    ],
)
def test_norms_cast_or_find_maxima_for_the_linear_layers_behind(
    name: str, norms: Norms, transposes: bool, less: float, kernels: int
) -> None:
    """In front of Q, K, V and of the feed-forward block; an adapter wants their result in bf16."""
    own = run(fitted(name, transposes=transposes))
    fused = replace(own, fusion=replace(own.fusion, norms=norms))

    def forward(one: Execution) -> tuple[float, int]:
        done = [k for k in kernels_of(block("dense", one).forward) if isinstance(k, MemoryBound)]
        return sum(k.bytes for k in done), sum(k.launches for k in done)

    (before, launched), (after, fewer) = forward(own), forward(fused)
    assert before - after == pytest.approx(2 * MODEL.seq * MODEL.hidden * less)
    assert launched - fewer == 2 * kernels
    adapted = [replace(one, lora=Lora(rank=8)) for one in (own, fused)]
    assert forward(adapted[0]) == forward(adapted[1])


def test_transposes_that_are_not_kept_are_made_in_every_backward_pass() -> None:
    kept, made = (
        replace(load("delayed-scaling"), keeps_transposes=on).fitted(transposes=True, sharded=False)
        for on in (True, False)
    )
    weights = MODEL.hidden * (2 * MODEL.hidden + 2 * MODEL.kv_width + 3 * MODEL.ffn)
    turned = [
        moved(block("dense", run(each)).backward, "weight transpose") for each in (kept, made)
    ]
    assert turned == [0, 2 * weights]
    assert (kept.held_weight, made.held_weight) == (2, 1)


def test_products_that_a_recipe_leaves_out_run_in_bf16_and_keep_their_input() -> None:
    recipe = replace(load("mxfp8"), products=("forward", "dgrad"))
    layer = block("dense", run(recipe))
    wgrad = [k for k in kernels_of(layer.weight_gradient) if isinstance(k, Gemm)]
    assert {gemm.precision for gemm in wgrad} == {"bf16"}
    assert layer.held == block("dense", run(None)).held


@pytest.mark.parametrize(
    ("name", "transposes", "each"),
    [
        ("current-scaling", False, 2 + 2 + 1),  # maximum; read, write
        ("current-scaling", True, 2 + 2 + 1 + 1),  # and transposed, on Hopper
        ("delayed-scaling", False, 2 + 1),
        ("delayed-scaling", True, 2 + 1 + 1),
        ("mxfp8", False, 2 + 2 * (1 + 1 / 32)),
        ("blockwise", True, 2 + 2 * (1 + 4 / 128)),
        ("nvfp4", False, 2 + 2 + 2 * (1 / 2 + 1 / 16)),
    ],
)
def test_casts_move_the_bytes_of_their_passes(name: str, transposes: bool, each: float) -> None:
    layer = block("dense", run(fitted(name, transposes=transposes)))
    assert moved(layer.forward, "cast") == pytest.approx(elements("forward") * each)
    assert moved(layer.backward, "cast") == pytest.approx(elements("backward") * each)


def test_torchao_casts_inputs_and_weights_again_behind() -> None:
    layer = block("dense", run(fitted("tensorwise")))
    weights = MODEL.hidden * (2 * MODEL.hidden + 2 * MODEL.kv_width + 3 * MODEL.ffn)
    assert moved(layer.forward, "weight cast") == weights * (2 + 2 + 1)
    assert moved(layer.backward, "weight cast") == weights * (2 + 1)
    assert moved(layer.backward, "input cast") == elements("forward") * (2 + 1)
    gathered = block("dense", run(fitted("tensorwise", sharded=True)))
    assert moved((*gathered.forward, *gathered.backward), "weight cast") == 0


@pytest.mark.parametrize("name", NAMES)
def test_what_waits_for_wgrad_is_the_operands_or_the_input(name: str) -> None:
    plain, recipe = block("dense", run(None)), load(name)
    layer = block("dense", run(recipe))
    output = MODEL.seq * MODEL.query_width  # of attention, the projection's input
    inputs = elements("forward") * (recipe.element - 2) if recipe.keeps_operand else 0.0
    if recipe.core:
        inputs += output * (recipe.core - recipe.element)
    gradients = elements("backward") * (recipe.element - 2)
    assert layer.held == pytest.approx(plain.held + inputs + gradients)
    # Flash attention still needs its output in bf16, which it shared with the projection.
    alone = 2 * output if recipe.keeps_operand and not recipe.core else 0
    read = 2 * MODEL.seq * MODEL.ffn if recipe.caches else 0  # gate and up
    cached = read * (recipe.element - 2)
    assert layer.saved == pytest.approx(plain.saved + inputs + alone + cached)


def test_sequence_parallel_inputs_are_gathered_in_eight_bits_and_sums_are_not() -> None:
    def sent(recipe: Recipe | None, kind: str) -> float:
        layer = block("dense", run(recipe, tp=4, sequence_parallel=True))
        calls = [item for item in layer.forward if isinstance(item, Collective)]
        return sum(call.bytes for call in calls if call.kind == kind)

    plain, low = run(None), fitted("current-scaling")
    assert sent(low, "all_gather") == sent(plain.recipe, "all_gather") / 2
    assert sent(low, "reduce_scatter") == sent(plain.recipe, "reduce_scatter")


def test_weights_take_what_their_formats_take() -> None:
    """TransformerEngine: fp8 parameters 1 byte, 2 on Hopper with the transpose; MXFP8 rows and
    columns; NVFP4 both beside bf16; sharded ones one copy."""
    assert fitted("current-scaling").held_weight == 1
    assert fitted("current-scaling", transposes=True).held_weight == 2
    assert fitted("mxfp8").held_weight == 2 * (1 + 1 / 32)
    assert fitted("nvfp4").held_weight == 2 + 2 * (1 / 2 + 1 / 16)
    assert fitted("current-scaling", transposes=True, sharded=True).held_weight == 1
    assert fitted("nvfp4", sharded=True).held_weight == 2


@pytest.mark.parametrize("name", NAMES)
def test_copies_that_cannot_stay_are_cast_in_every_pass(name: str) -> None:
    recipe = fitted(name, sharded=True)
    layer = block("dense", run(recipe))
    cast = moved((*layer.forward, *layer.backward), "weight cast")
    assert (cast > 0) == (not recipe.gathers_weights)


def test_a_cast_is_memory_bound() -> None:
    kernels = kernels_of(block("dense", run(load("mxfp8"))).forward)
    assert all(isinstance(kernel, MemoryBound) for kernel in kernels if "cast" in kernel.name)
