"""The torch modules are what `sim.model` describes: parameters, products, kept bytes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sim.model.counts import parameters
from sim.model.kernels import Gemm, Item
from sim.parallel.job import Job
from sim.parallel.memory import memory
from sim.parallel.step import training_step
from tests.analysis.calibration.tiny import FAMILIES, GPT, LLAMA, job

torch = pytest.importorskip("torch")

from sim.analysis.calibration.training.peak_memory import peak  # noqa: E402 - torch modules
from sim.analysis.calibration.training.trainer import Trainer  # noqa: E402


def described(trained: Job) -> Iterator[Item]:
    """Everything that the job lists for a micro-step."""
    ((chunk,),) = trained.chunks
    for block in trained.blocks(chunk):
        yield from (*block.forward, *block.recompute, *block.backward)


def described_flops(trained: Job) -> float:
    return sum(item.flops for item in described(trained) if isinstance(item, Gemm))


def executed_flops(trained: Job) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    trainer = Trainer(trained)
    trainer.step()
    with FlopCounterMode(display=False) as counter:
        trainer.step()
    return float(counter.get_total_flops())


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_module_has_the_parameters_of_its_model(family: str, standard: bool) -> None:
    model = replace(FAMILIES[family], attention="standard" if standard else "flash")
    for packed in (True, False):
        trained = job(model)
        fusion = replace(trained.stack.fusion, packed_projections=packed)
        trained = replace(trained, stack=replace(trained.stack, fusion=fusion))
        assert Trainer(trained).network.parameter_count == parameters(model)


@pytest.mark.parametrize(
    ("family", "recompute"),
    [("gpt", "none"), ("gpt", "selective"), ("llama", "full"), ("bert", "none")],
)
def test_executed_products_are_those_described(family: str, recompute: str) -> None:
    trained = job(replace(FAMILIES[family], attention="standard"), recompute=recompute)
    # The next-sentence classifier's two columns are within its small kernels.
    classifier = 6 * 2 * 32 * 2 if family == "bert" else 0
    expected = described_flops(trained) + classifier
    assert executed_flops(trained) == pytest.approx(expected, rel=1e-12)


def test_full_recomputation_runs_the_layers_forward_twice() -> None:
    runs = []
    for recompute in ("none", "full"):
        trainer = Trainer(job(GPT, recompute=recompute))
        forwards = []
        trainer.network.layers[0].ffn.register_forward_hook(lambda *_, f=forwards: f.append(1))
        trainer.step()
        runs.append(len(forwards))
    assert runs == [1, 2]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_recomputation_changes_no_loss(recompute: str) -> None:
    trainers = [Trainer(job(GPT, recompute=choice)) for choice in ("none", recompute)]
    for _ in range(2):
        for trainer in trainers:
            trainer.step()
    assert trainers[0].loss == pytest.approx(trainers[1].loss, rel=1e-6)


def test_accumulation_over_micro_steps_is_one_large_batch() -> None:
    """Losses of equal batches average, so do gradients: the same weights after the step."""
    in_parts = Trainer(job(LLAMA, global_batch=4))
    at_once = Trainer(job(LLAMA, microbatch=4, global_batch=4))
    joined = {
        name: torch.cat([getattr(batch, name) for batch in in_parts.batches])
        for name in ("tokens", "targets")
    }
    at_once.batches = [replace(at_once.batches[0], **joined)]
    for trainer in (in_parts, at_once):
        trainer.step()
    pairs = zip(in_parts.network.parameters(), at_once.network.parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_half_precision_keeps_masters(precision: str) -> None:
    trainer = Trainer(job(GPT, precision=precision))
    trainer.step()
    width = {"fp32": 4 + 8, "bf16": 2 + 4 + 8}[precision]
    assert trainer.held == pytest.approx(width * parameters(GPT), rel=0.02)
    assert all(master.dtype == torch.float32 for master in trainer.optimizer.updated)


@pytest.mark.parametrize(
    ("family", "recompute", "micro_steps"),
    [("gpt", "none", 1), ("llama", "full", 1), ("bert", "none", 2)],
)
def test_peak_memory_is_what_the_model_says(family: str, recompute: str, micro_steps: int) -> None:
    model = replace(FAMILIES[family], hidden=64, ffn=256, seq=64, vocab=200, head=16)
    trained = job(model, microbatch=4, global_batch=4 * micro_steps, recompute=recompute)
    trainer = Trainer(trained)
    for _ in range(2):
        trainer.step()
    measured = peak(trainer.step, lambda: trainer.held, "cpu")
    predicted = memory(trained, training_step(trained), stage=0)
    assert predicted.total == pytest.approx(measured, rel=0.10)
