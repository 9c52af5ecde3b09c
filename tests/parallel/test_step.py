"""A training step as a program: what its stages have in common, and what follows the passes."""

from math import ceil

import pytest

from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.model.transformer import Transformer
from sim.parallel.job import Job
from sim.parallel.plan import Plan
from sim.parallel.schedule import schedule
from sim.parallel.step import optimizer, training_step
from sim.program.causes import EMBEDDING
from sim.program.operations import Collective, Communicate, Receive, Send
from sim.program.program import Program
from sim.program.unrolled import operations
from sim.scenario.setup import assemble


def job(stack: str = "megatron-core", *, tied: bool = True, **plan: object) -> Job:
    model = Transformer(
        layers=8, hidden=256, heads=4, ffn=1024, vocab=1000, seq=256, tied_embeddings=tied
    )
    settings = Plan(**({"global_batch": 32, "pp": 4, **plan}))  # type: ignore[arg-type]
    topology = topologies.load("dgx-h100-ndr").with_gpus(8)
    software = stacks.load(stack)
    return assemble("small", model=model, stack=software, topology=topology, plan=settings).job


def closing(program: Program, stage: int) -> list[str]:
    return [operation.name for operation in program.stages[stage].closing]


def test_stages_that_do_the_same_are_one_object():
    stages = training_step(job(schedule="gpipe")).stages
    assert stages[1] is stages[2]
    assert len({id(stage) for stage in stages}) == 3


def test_equal_passes_run_the_same_operations():
    program = training_step(job(interleave=2, global_batch=64))
    inner = program.stages[1]
    forward = {id(ops) for own, ops in inner.ops_by_variant.items() if own.kind == "F"}
    assert len(forward) == 1


@pytest.mark.parametrize(
    ("plan", "holders"),
    [({}, (0, 3)), ({"schedule": "zb-v"}, None), ({"tied": False}, None), ({"pp": 1}, None)],
)
def test_a_tied_matrix_is_summed_where_two_stages_hold_it(plan, holders):
    own = job(**plan)
    program = training_step(own)
    calls = [
        (stage, call)
        for stage, stage_program in enumerate(program.stages)
        for operation in stage_program.closing
        if isinstance(operation, Communicate)
        for call in operation.calls
        if isinstance(call, Collective) and call.cause == EMBEDDING
    ]
    assert [stage for stage, _ in calls] == list(holders or ())
    assert all(call.stages == holders and call.axes == ("pp",) for _, call in calls)


def test_stages_that_hold_the_same_pieces_sum_their_gradients():
    """DualPipe: both copies together are all-reduced once, each rank's share of them under ZeRO."""
    sizes = dict(schedule="dualpipe", tied=False, global_batch=64)
    for zero, share in ((0, 1), (1, 2)):
        own = job("megatron-core", zero=zero, dp=2, **sizes)
        for stage, program in enumerate(training_step(own).stages):
            (calls,) = [op.calls for op in program.closing if op.name == "sum copies"]
            size = sum(own.parameters(own.chunks[stage]).values()) * own.stack.reduced_bytes("bf16")
            assert calls[0].stages == (min(stage, 3 - stage), max(stage, 3 - stage))
            assert (calls[0].axes, calls[0].bytes) == (("pp",), size / share)
    assert "sum copies" not in closing(training_step(job("megatron-core")), 1)


@pytest.mark.parametrize(
    ("stack", "plan", "expected"),
    [
        ("megatron-lm-2021", {}, ["reduce gradients", "norm", "optimizer"]),
        ("megatron-core", {}, ["norm", "optimizer"]),  # gradients left with the passes
        ("megatron-core", {"zero": 1}, ["norm", "optimizer"]),  # weights come with the next ones
        ("torchtitan-compile", {"zero": 1}, ["norm", "optimizer", "gather weights"]),
        ("torchtitan-compile", {"zero": 3}, ["norm", "optimizer"]),
    ],
)
def test_what_follows_the_passes_is_in_this_order(stack, plan, expected):
    assert closing(training_step(job(stack, tied=False, **plan)), 1) == expected


def test_batched_exchanges_are_for_one_chunk_a_stage():
    """With several, neighbours do not take turns and would wait for each other in a circle."""
    assert training_step(job("megatron-lm-2021")).exchange.style == "batched"
    several = training_step(job("megatron-lm-2021", interleave=2))
    assert several.exchange.style == "async-send"


@pytest.mark.parametrize(("stack", "among"), [("megatron-lm-zero-bubble", 4), ("nanotron", 2)])
def test_messages_go_over_the_communicator_that_their_stack_names(stack, among):
    own = job(stack, pp=4)
    assert training_step(own).exchange.among == among
    sent = [
        call.among
        for operation, _ in operations(training_step(own), 1)
        if isinstance(operation, Communicate)
        for call in operation.calls
        if isinstance(call, Send | Receive)
    ]
    assert set(sent) == {among}


def test_another_schedule_may_be_run_than_the_plans():
    own = job()
    short = schedule("1f1b", 4, 5)
    assert training_step(own, short).schedule is short


@pytest.mark.parametrize(("zero", "reads"), [(0, 1), (1, 2)])
def test_deepspeed_s_host_reads_every_gradient_tensor_of_its_share(zero, reads) -> None:
    """A sum for overflows, and under ZeRO a norm."""
    own = job("hf-deepspeed", pp=1, zero=zero, precision="fp16")
    tensors = own.model.layers * own.model.tensors_of_a_layer + 2
    read = [item for item in optimizer(own, 0) if item.name == "read"]
    assert len(read) == reads * ceil(tensors / (8 if zero else 1))
    assert not [i for i in optimizer(job("hf-ddp", pp=1, precision="fp16"), 0) if i.name == "read"]


def test_gradients_are_copied_around_their_reduction_as_often_as_the_stack_says() -> None:
    own = job("hf-deepspeed", pp=1, precision="fp16")
    names = [operation.name for operation in training_step(own).stages[0].closing]
    assert names.index("bucket") == names.index("reduce gradients") - 1
    count = sum(own.parameters(own.chunks[0]).values())
    assert own.stack.bucket_bytes("fp16") * count == 3 * (2 + 2) * count
    assert "bucket" not in closing(training_step(job("megatron-lm-2022", pp=1)), 0)


def test_the_gradient_norm_is_a_single_number_over_all_ranks_of_the_model() -> None:
    calls = [call for stage in training_step(job(tp=2, pp=2)).stages for call in stage.calls]
    (norm,) = {call for call in calls if call.name == "gradient norm"}
    assert norm.bytes == 4.0  # of fp32
    assert set(norm.axes) == {"tp", "pp"}
