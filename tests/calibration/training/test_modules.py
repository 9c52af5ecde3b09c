"""The torch modules are what `sim.model` describes: parameters, products, kept bytes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sim.model.execution import Recompute
from sim.model.kernels import Gemm, Item
from sim.parallel.footprint import footprint
from sim.parallel.work import Job
from tests.calibration.tiny import FAMILIES, GPT, LLAMA, job

torch = pytest.importorskip("torch")

from sim.calibration.training import allocation  # noqa: E402 - torch modules
from sim.calibration.training.trainer import Trainer  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors on many threads mostly wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def described(one: Job) -> Iterator[Item]:
    """Everything that the job lists for a micro-step."""
    for work, times in ((one.embedding, 1), (one.layer, one.model.layers), (one.head, 1)):
        for items in (work.forward, work.recompute, work.backward):
            yield from times * items


def described_flops(one: Job) -> float:
    return sum(item.flops for item in described(one) if isinstance(item, Gemm))


def executed_flops(one: Job) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    trainer = Trainer(one)
    trainer.step()
    with FlopCounterMode(display=False) as counter:
        trainer.step()
    return float(counter.get_total_flops())


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_module_has_the_parameters_of_its_model(family: str, standard: bool) -> None:
    model = replace(FAMILIES[family], attention="standard" if standard else "flash")
    for packed in (True, False):
        one = job(model)
        fusion = replace(one.stack.fusion, packed_projections=packed)
        one = replace(one, stack=replace(one.stack, fusion=fusion))
        assert Trainer(one).network.count == model.parameters


@pytest.mark.parametrize(
    ("family", "recompute"),
    [("gpt", "none"), ("gpt", "selective"), ("llama", "full"), ("bert", "none")],
)
def test_executed_products_are_those_described(family: str, recompute: Recompute) -> None:
    one = job(replace(FAMILIES[family], attention="standard"), recompute=recompute)
    # The next-sentence classifier's two columns are within its small kernels.
    classifier = 6 * 2 * 32 * 2 if family == "bert" else 0
    assert executed_flops(one) == pytest.approx(described_flops(one) + classifier, rel=1e-12)


def test_full_recomputation_runs_the_layers_forward_twice() -> None:
    runs = []
    for recompute in ("none", "full"):
        trainer = Trainer(job(GPT, recompute=recompute))
        count = []
        trainer.network.layers[0].ffn.register_forward_hook(lambda *_, c=count: c.append(1))
        trainer.step()
        runs.append(len(count))
    assert runs == [1, 2]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_recomputation_changes_no_loss(recompute: Recompute) -> None:
    trainers = [Trainer(job(GPT, recompute=how)) for how in ("none", recompute)]
    for _ in range(2):
        for trainer in trainers:
            trainer.step()
    assert trainers[0].loss == pytest.approx(trainers[1].loss, rel=1e-6)


def test_accumulation_over_micro_steps_is_one_large_batch() -> None:
    """Losses of equal batches average, so do gradients: the same weights after the step."""
    cut, whole = (
        Trainer(job(LLAMA, global_batch=4)),
        Trainer(job(LLAMA, microbatch=4, global_batch=4)),
    )
    joined = {
        name: torch.cat([getattr(one, name) for one in cut.batches])
        for name in ("tokens", "targets")
    }
    whole.batches = [replace(whole.batches[0], **joined)]
    for trainer in (cut, whole):
        trainer.step()
    pairs = zip(cut.network.parameters(), whole.network.parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_half_precision_keeps_masters(precision: str) -> None:
    trainer = Trainer(job(GPT, precision=precision))
    trainer.step()
    width = {"fp32": 4 + 8, "bf16": 2 + 4 + 8}[precision]
    assert trainer.held == pytest.approx(width * GPT.parameters, rel=0.02)
    assert all(one.dtype == torch.float32 for one in trainer.update.updated)


@pytest.mark.parametrize(
    ("family", "recompute", "micro_steps"),
    [("gpt", "none", 1), ("llama", "full", 1), ("bert", "none", 2)],
)
def test_peak_memory_is_what_the_model_says(
    family: str, recompute: Recompute, micro_steps: int
) -> None:
    model = replace(FAMILIES[family], hidden=64, ffn=256, seq=64, vocab=200, head=16)
    one = job(model, microbatch=4, global_batch=4 * micro_steps, recompute=recompute)
    trainer = Trainer(one)
    for _ in range(2):
        trainer.step()
    measured = allocation.peak(trainer.step, trainer.held, "cpu")
    assert footprint(one, 0).total == pytest.approx(measured, rel=0.10)
