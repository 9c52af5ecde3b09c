"""Low-rank adapters: what a frozen model does not compute, keep, sum up or hold."""

from dataclasses import replace

import pytest

from sim import kind
from sim.config.errors import InputError
from sim.model import counts, reading
from sim.model.block import block, check_adapters
from sim.model.execution import Execution
from sim.model.kernels import Gemm, Overlap
from sim.model.lora import Lora
from sim.model.operators import kernels_of
from sim.parallel.data import reduced
from sim.program.operations import Collective
from sim.scenario.setup import PlanSetup, from_scenario
from sim.simulate import answer as simulate
from tests.model.executions import fused

MODEL = reading.load("llama3-8b")
RANK = 16


def run(lora: Lora | None, **sharding) -> Execution:
    return fused(MODEL, lora=lora, **sharding)


def setup(*settings: str) -> PlanSetup:
    return from_scenario(kind.load("llama3-70b-lora", settings))


def flops(items) -> float:
    return sum(k.flops for k in kernels_of(items) if isinstance(k, Gemm))


def test_adapters_have_r_rows_and_columns_of_each_matrix() -> None:
    """NeMo's four: r (inputs + outputs) parameters a linear layer."""
    h, ffn, kv = MODEL.hidden, MODEL.ffn, MODEL.kv_width
    shapes = [(h, h + 2 * kv), (h, h), (h, 2 * ffn), (ffn, h)]
    layer = block("dense", run(Lora(rank=RANK)))
    assert layer.trained == RANK * sum(map(sum, shapes))
    qkv = block("dense", run(Lora(rank=RANK, modules=("linear_qkv",))))
    assert qkv.trained == RANK * sum(shapes[0])
    assert layer.count - layer.trained == block("dense", run(None)).count


def test_dropout_in_front_of_adapters_keeps_its_mask_and_its_result() -> None:
    plain, dropped = (
        block("dense", run(Lora(rank=RANK, modules=("linear_qkv",), dropout=on)))
        for on in (False, True)
    )
    elements = MODEL.seq * MODEL.hidden
    for each in ("forward", "backward"):
        moved = [
            sum(k.bytes for k in kernels_of(getattr(one, each)) if k.family == "stream")
            for one in (plain, dropped)
        ]
        assert moved[1] - moved[0] == elements * (2 + 2 + 1)
    # The norm's output is no longer what the adapter reads; nobody else keeps it.
    assert dropped.saved == plain.saved + elements


def test_backward_of_a_frozen_layer_is_its_input_gradients_and_the_adapters_products() -> None:
    plain, layer = block("dense", run(None)), block("dense", run(Lora(rank=RANK)))
    narrow = 2.0 * MODEL.seq * layer.trained
    assert flops(layer.forward) == pytest.approx(flops(plain.forward) + narrow)
    assert flops(layer.input_gradient) == pytest.approx(flops(plain.input_gradient) + narrow)
    assert flops(layer.weight_gradient) == pytest.approx(narrow)


def test_a_frozen_linear_keeps_nothing_and_gathers_nothing_again() -> None:
    frozen = block("dense", run(Lora(rank=RANK, modules=("linear_qkv",))))
    plain = block("dense", run(None))
    h, ffn, rows = MODEL.hidden, MODEL.ffn, MODEL.seq
    # Attention's output stays for attention itself, the input of qkv for its adapter.
    gone = 2 * rows * (h + ffn)
    assert frozen.saved == pytest.approx(plain.saved - gone + 2 * rows * RANK)
    split = block("dense", run(Lora(rank=RANK), tp=4, sequence_parallel=True))
    again = [item for item in split.backward if isinstance(item, Collective)]
    assert not any("input all-gather" in call.name for call in again)


def test_only_adapters_have_gradients_and_states() -> None:
    job = setup().job
    result = simulate(setup())
    trained = sum(n for g, n in job.parameters(job.chunks[0]).items() if g.trained)
    widths = {"gradients": 2, "optimizer": 12}  # Megatron-Bridge sums gradients in bf16
    for part, width in widths.items():
        assert result.memory_per_gpu[part] == pytest.approx(trained * width, rel=1e-9)


def test_replicas_sum_the_gradients_of_adapters_only() -> None:
    job = setup("plan.pp=1", "plan.interleave=1", "plan.schedule=1f1b").job
    parameters = job.parameters(job.chunks[0])
    calls = [call for one in reduced(job, parameters, "sum", stream="data") for call in one.calls]
    trained = sum(count for group, count in parameters.items() if group.trained)
    assert job.plan.dp == 4
    assert [call.bytes for call in calls] == [2 * trained]


def test_model_flops_of_frozen_weights_are_two_thirds() -> None:
    assert counts.model_flops(MODEL, 1, frozen=True) == counts.model_flops(MODEL, 1) * 2 / 3


@pytest.mark.parametrize("modules", [("linear_qkv",), ("linear_fc1", "linear_fc2")])
def test_more_rank_takes_longer_and_more_memory(modules) -> None:
    small, large = (
        block("dense", run(Lora(rank=rank, modules=modules))) for rank in (RANK, 4 * RANK)
    )
    assert large.trained == 4 * small.trained
    assert flops(large.forward) > flops(small.forward)
    assert large.saved > small.saved


def test_a_layer_without_adapter_is_only_frozen() -> None:
    lora = replace(Lora(rank=RANK), modules=())
    layer = block("dense", run(lora))
    assert layer.trained == 0
    assert layer.weight_gradient == ()


def test_tensor_parallel_overlap_beside_adapters_is_the_plans_choice() -> None:
    """Megatron-Bridge's recipes of LoRA switch it off, MLPerf's submissions on."""

    def beside(*settings: str) -> int:
        items = setup(*settings).job.block("dense").forward
        return sum(isinstance(item, Overlap) for item in items)

    assert beside() == beside("plan.tp_comm_overlap=false") == 0
    assert beside("plan.tp_comm_overlap=true") == 4, "two gathers and two scatters"


def test_usual_modules_may_be_missing_and_named_modules_may_not() -> None:
    experts = reading.load("mixtral-8x7b")
    usual = fused(experts, lora=Lora(rank=RANK))
    check_adapters(experts.kinds, usual, where="plan")
    named = fused(experts, lora=Lora(rank=RANK, modules=("linear_qkv", "linear_fc1")))
    with pytest.raises(InputError, match="no layer of this model has a linear layer 'linear_fc1'"):
        check_adapters(experts.kinds, named, where="plan")
