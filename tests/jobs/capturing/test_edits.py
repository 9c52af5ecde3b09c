"""An edit of a recording is what capturing the changed script gives."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from sim import kind, questions
from sim.analysis.explanation.explain import explain
from sim.config.errors import InputError
from sim.jobs.capturing.capture import capture_script
from sim.jobs.recorded.axes import every_axes
from sim.jobs.recorded.edits.reduction import in_bf16
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.setup import Recorded, RecordedScenario
from sim.results.result import Result
from tests.jobs.capturing.conftest import DDP, MODEL

# Large enough that the device is the limit; a fake tensor's size costs nothing.
SIZES = "LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH, BATCH = "
SCRIPT = (
    MODEL.replace(f"{SIZES}2, 256, 4, 1000, 128, 4", f"{SIZES}3, 2048, 16, 8000, 1024, 4")
    .replace("for _ in range(micro):", "for number in range(micro):")
    .replace(
        "            tokens = ", "            SYNC(model, number, micro)\n            tokens = "
    )
    + "\nSYNC = lambda *_: None\nNO_SYNC = False\n"
)
MICRO = DDP.replace("bucket_cap_mb=1", "bucket_cap_mb=25").replace(
    "(model)\n", "(model, micro=3)\n"
)
ATTENTION = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
MASKED = "((q @ k.mT * 0.1).masked_fill(MASK == 0, -1e9).softmax(-1) @ v)"
MASK = "MASK = torch.ones(LENGTH, LENGTH, device='cuda').tril()"
BY_HAND = (SCRIPT + MICRO).replace(ATTENTION, MASKED).replace("dist.init", f"{MASK}\ndist.init")
LAST_ONLY = ("SYNC = lambda *_: None", "SYNC = lambda model, number, micro: {}")
FSDP = """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

AGAIN, RESHARD = True, True
dist.init_process_group("nccl")
model = Model().to("cuda")
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)


class Checkpointed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False) if AGAIN else self.layer(x)


for n, layer in enumerate(model.layers):
    layer = model.layers[n] = Checkpointed(layer)
    fully_shard(layer, mp_policy=policy, reshard_after_forward=RESHARD)
fully_shard(model, mp_policy=policy)
train(model, micro=2)
"""

HOOK = """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
model.register_comm_hook(None, bf16_compress_hook)
"""
LINEAR = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
model = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(6)]).to("cuda")
model = nn.parallel.DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=40)
beside = nn.Sequential(*[nn.Linear(4096, 2048) for _ in range(2)]).to("cuda")
optimizer = torch.optim.SGD([*beside.parameters(), *model.parameters()], lr=0.1)
for _ in range(3):
    x = torch.randn(8, 4096, device="cuda")
    model(beside[0](x) + beside[1](x)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

FP32 = ("dtype=torch.bfloat16", "enabled=False")


@cache
def recorded(text: str) -> Recording:
    """The recording of a script, each captured once."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        path.write_text(text)
        (found,) = capture_script(path, world=64)
    return found


def played(recording: Recording) -> tuple[Recorded, Result]:
    scenario = RecordedScenario(name="own", record=(recording,), topology="dgx-h100-ndr")
    setup = cast(Recorded, kind.set_up(scenario))
    return setup, cast(Result, kind.answer(setup))


def edited(text: str, change: str) -> tuple[Result, Result, float, float]:
    """The step before and behind the edit of a change, and the allocated bytes at its peak."""
    setup, before = played(recorded(text))
    (own,) = [one for one in questions.advice(setup) if change in one.change][:1]
    then = own.made(setup)
    return before, cast(Result, kind.answer(then)), then.memories[0].peak().allocated, own.samples


def held_against(
    change: str, before: str, after: str, *, time: float, memory: float | None = None
) -> None:
    was, edit, allocated, _ = edited(before, change)
    setup, real = played(recorded(after))
    assert edit.step_time == pytest.approx(real.step_time, rel=time)
    moved = abs(real.step_time - was.step_time)
    if moved > 2 * time * real.step_time:  # it is the change that is predicted
        assert abs(edit.step_time - real.step_time) < 0.5 * moved
    if memory is not None:
        assert allocated == pytest.approx(setup.memories[0].peak().allocated, rel=memory)


@pytest.mark.parametrize("kept", ["foreach=False", "foreach=True"])
def test_a_fused_optimizer_is_the_one_that_torch_runs(kept: str) -> None:
    text = SCRIPT + MICRO
    held_against("fused=True", text.replace("fused=True", kept), text, time=1e-3)


def test_autocast_casts_what_torch_casts() -> None:
    text = SCRIPT + MICRO
    held_against("autocast", text.replace(*FP32), text, time=0.05)


def test_attention_by_hand_is_one_kernel_of_torchs() -> None:
    held_against("scaled_dot_product", BY_HAND, SCRIPT + MICRO, time=0.03, memory=0.03)


def test_attention_with_a_bias_of_its_own_is_left_by_hand() -> None:
    text = SCRIPT + MICRO
    own = "((q @ k.mT + torch.ones(HEADS, LENGTH, LENGTH, device='cuda')).softmax(-1) @ v)"
    setup, _ = played(recorded(text.replace(ATTENTION, own)))
    assert not [one for one in questions.advice(setup) if "dot_product" in one.change]


def test_tf32_is_a_matter_of_a_flag() -> None:
    text = (SCRIPT + MICRO).replace(*FP32)
    high = text + "\n"
    high = high.replace("dist.init", 'torch.set_float32_matmul_precision("high")\ndist.init')
    held_against("matmul_precision", text, high, time=1e-6, memory=1e-6)


@pytest.mark.parametrize(
    "text", [SCRIPT + MICRO, SCRIPT + FSDP, BY_HAND], ids=["ddp", "fsdp", "by hand"]
)
def test_a_batch_twice_as_large_is_the_one_that_is_captured(text: str) -> None:
    held_against("8 samples", text, text.replace("1024, 4\n", "1024, 8\n"), time=0.01, memory=0.07)


def test_a_copy_that_nobody_waits_for_is_one_from_pinned_memory() -> None:
    text = SCRIPT + MICRO
    pinned = text.replace(
        '.to("cuda")\n            with', '.to("cuda", non_blocking=True)\n            with'
    )
    assert pinned != text
    held_against("without waiting", text, pinned, time=1e-3, memory=1e-6)


@pytest.mark.parametrize(
    ("end", "own"),
    [
        (MICRO, "setattr(model, 'require_backward_grad_sync', number == micro - 1)"),
        (FSDP, "model.set_requires_gradient_sync(number == micro - 1)"),
    ],
    ids=["ddp", "fsdp"],
)
def test_gradients_may_be_summed_in_the_last_microbatch_only(end: str, own: str) -> None:
    text = SCRIPT + end
    late = text.replace(LAST_ONLY[0], LAST_ONLY[1].format(own))
    assert late != text
    held_against("no_sync", text, late, time=0.03)


def test_buckets_that_are_larger_are_ddps() -> None:
    text = SCRIPT + MICRO
    larger = text.replace("bucket_cap_mb=25", "bucket_cap_mb=100")
    held_against("=100", text, larger, time=0.01)


def test_gradients_that_are_views_of_buckets_are_not_copied() -> None:
    text = SCRIPT + MICRO
    views = text.replace("device_ids=[0]", "device_ids=[0], gradient_as_bucket_view=True")
    held_against("bucket_view", text, views, time=0.01, memory=0.01)


def test_gradients_outside_ddp_stay_where_others_are_views_of_buckets() -> None:
    views = LINEAR.replace("device_ids=[0]", "device_ids=[0], gradient_as_bucket_view=True")
    held_against("bucket_view", LINEAR, views, time=0.01, memory=0.001)


def test_a_hook_holds_a_bucket_in_bf16_beside_the_bucket() -> None:
    text = LINEAR.replace("beside[0](x) + beside[1](x)", "x[:, :2048]")
    text = text.replace("bucket_cap_mb=40", "bucket_cap_mb=400")
    hooked = text.replace("beside =", f"{HOOK}beside =")
    held_against("bf16_compress_hook", text, hooked, time=0.05, memory=0.001)


def test_a_hook_that_sends_bf16_casts_buckets_in_kernels_of_its_own() -> None:
    text = SCRIPT + MICRO
    hooked = text.replace("\ntrain(model, micro=3)", f"\n{HOOK}train(model, micro=3)")
    assert hooked != text
    # A capture waits for all buckets before the first is copied out, an edit for each by itself.
    held_against("bf16_compress_hook", text, hooked, time=0.04)
    kernels = [
        Counter(own.operators[e.operator].name for e in own.events if e.kind == "kernel")
        for own in (recorded(hooked), in_bf16(recorded(text), next(every_axes([recorded(text)]))))
    ]
    assert kernels[0] == kernels[1]


def test_what_checkpointing_ran_again_is_held() -> None:
    text = SCRIPT + FSDP
    kept = text.replace("AGAIN, RESHARD = True", "AGAIN, RESHARD = False")
    held_against("leave out activation", text, kept, time=0.01, memory=0.05)


def test_weights_that_stay_gathered_are_held() -> None:
    text = SCRIPT + FSDP
    kept = text.replace("RESHARD = True, True", "RESHARD = True, False")
    held_against("reshard_after_forward=False", text, kept, time=0.01, memory=0.01)


def test_states_sharded_within_a_node_are_hybrid_sharding() -> None:
    """To 3 %: captured sums wait for one another in another order. Memory of the update differs."""
    text = SCRIPT + FSDP
    mesh = 'mesh=dist.init_device_mesh("cuda", (8, 8), mesh_dim_names=("replicate", "shard"))'
    hybrid = text.replace("mp_policy=policy", f"{mesh}, mp_policy=policy")
    held_against("mesh=", text, hybrid, time=0.03, memory=0.15)


@pytest.mark.long
def test_fused_kernels_save_no_more_than_inductor_does() -> None:
    text = SCRIPT + MICRO
    before, edit, _, _ = edited(text, "torch.compile(model)")
    _, real = played(recorded(text.replace("(Model().to", "(torch.compile(Model()).to")))
    assert real.step_time < 1.02 * edit.step_time
    assert edit.step_time < before.step_time


def test_advice_is_sorted_fits_and_names_lines_of_the_script() -> None:
    scenario = RecordedScenario(
        name="own", record=(recorded(SCRIPT + FSDP),), topology="dgx-h100-ndr"
    )
    answer = explain(scenario, advise=True)
    assert answer.advice
    first, *others = answer.advice
    assert first.each < min(one.each for one in others)  # several of them together
    assert {own.change for own in first.changes} <= {one.change for one in others}
    assert all(own.change in first.change for own in first.changes)
    assert [one.each for one in others] == sorted(one.each for one in others)
    assert all(one.result.fits is True and one.each < answer.step_time for one in answer.advice)
    lines = (SCRIPT + FSDP).splitlines()
    wrapped = 1 + next(n for n, text in enumerate(lines) if "    fully_shard(layer" in text)
    edits = {one.change.partition("(")[0]: one.at for one in others}
    assert edits["compile the model: model = torch.compile"] == f"train.py:{wrapped}"
    table = str(answer).split("\n\n")[1].splitlines()
    assert "edit" in table[1]
    assert max(map(len, table)) <= 100
    assert "Changes of the script" in str(answer)
    larger = [one for one in others if one.samples > 1.0]
    assert len(larger) == 1  # the best of the larger batches
    assert "may change the loss" in larger[0].why
    assert f" {larger[0].samples:g}x " in str(answer)
    assert "the time is spent at train.py:" in str(answer)


def test_a_job_without_a_script_has_no_advice() -> None:
    with pytest.raises(InputError, match="has no script"):
        explain("megatron-1.7b", advise=True)
