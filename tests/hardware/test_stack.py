"""Software stacks: every one loads, and says what its documentation says."""

import pytest

from sim.config import catalog
from sim.hardware import stack as stacks


@pytest.mark.parametrize("name", catalog.names("topologies/stacks"))
def test_every_stack_loads(name: str) -> None:
    assert stacks.load(name).name


@pytest.mark.parametrize(
    ("software", "name"),
    [
        ("megatron-bridge-25.09", "Megatron-Bridge"),
        ("megatron-bridge-27.01.03", "Megatron-Bridge"),
        ("nemo-24.03.01", "NeMo"),
        ("nemo-mlperf-v4.1", "NeMo, MLPerf v4"),
        ("nemo-mlperf-v5.1", "NeMo, MLPerf v5"),
        ("nemo-megatron-23.07", "NeMo Megatron 23.07"),
        ("amd-mlperf-v5.0", "AMD, MLPerf"),
        ("primus-megatron", "Primus"),
        ("megatron-deepspeed", "Megatron-DeepSpeed"),
        ("megatron-deepspeed-bloom", "Megatron-DeepSpeed 2021"),
        ("megatron-deepspeed-3d", "Megatron-DeepSpeed 3D"),
        ("hf-transformers-4.12 + deepspeed", "HF transformers, DeepSpeed"),
        ("hf-transformers-4.12 ddp", "HF transformers, DDP"),
        ("maxtext-xla", "MaxText"),
    ],
)
def test_software_of_any_version_finds_the_stack_that_describes_it(
    software: str, name: str
) -> None:
    assert stacks.load(software).name == name


@pytest.mark.parametrize("name", catalog.names("topologies/stacks"))
def test_every_stack_says_where_it_comes_from(name: str) -> None:
    assert catalog.find("topologies/stacks", name).read_text().startswith("# ")


@pytest.mark.parametrize(
    ("name", "reduced"),
    [
        ("megatron-lm-2021", 2),  # fp16 gradients, reduced as they are
        ("nanotron", 4),  # accumulated and reduced in fp32
        ("megatron-core", 4),  # accumulate_allreduce_grads_in_fp32
        ("pytorch-ddp", 2),
    ],
)
def test_bytes_of_a_gradient_on_the_network(name: str, reduced: int) -> None:
    assert stacks.load(name).reduced_bytes("bf16") == reduced


def test_weights_are_half_precision_also_under_fp8() -> None:
    stack = stacks.load("torchtitan-compile")
    assert [stack.weight_bytes(p) for p in ("fp32", "tf32", "bf16", "fp8")] == [4, 4, 2, 2]


def test_ddp_cuts_gradients_into_torch_s_default_buckets() -> None:
    stack = stacks.load("pytorch-ddp")
    assert (stack.first_bucket, stack.bucket) == (2**20, 25 * 2**20)
    assert stack.overlap_gradients


def test_megatron_of_2021_overlaps_no_gradients_and_scatters_its_sends() -> None:
    stack = stacks.load("megatron-lm-2021")
    assert not stack.overlap_gradients
    assert stack.scatter_gather
    assert stack.exchange_sync


def test_the_asynchronous_stack_differs_by_its_tensor_parallelism_alone() -> None:
    plain, overlapped = (
        stacks.load("torchtitan-compile"),
        stacks.load("torchtitan-compile-async-tp"),
    )
    assert overlapped.fusion.overlap_tensor
    assert not plain.fusion.overlap_tensor
    assert plain.launch_forward == overlapped.launch_forward
