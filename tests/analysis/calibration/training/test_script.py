"""The scripts of jobs do what `sim.model` describes: parameters, products, kept bytes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sim.analysis.calibration.training.phase_timer import bytes_of
from sim.analysis.calibration.training.real_run import Interleaving, measure_text
from sim.analysis.calibration.training.script import script_of
from sim.model.counts import parameters
from sim.model.kernels import Gemm, Item
from sim.parallel.job import Job
from sim.parallel.memory import memory
from sim.parallel.step import training_step
from tests.analysis.calibration.tiny import FAMILIES, GPT, LLAMA, job, trained
from tests.lazy import torch


def text(of: Job, steps: int = 0) -> str:
    return script_of(of, "tiny", "cpu", steps=steps)


def described(of: Job) -> Iterator[Item]:
    """Everything that the job lists for a micro-step."""
    ((chunk,),) = of.chunks
    for block in of.blocks(chunk):
        yield from (*block.forward, *block.recompute, *block.backward)


def described_flops(of: Job) -> float:
    return sum(item.flops for item in described(of) if isinstance(item, Gemm))


def executed_flops(of: Job) -> float:
    """Those of the one step of a script of no steps: the step before them."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        trained(text(of))
    return float(counter.get_total_flops())


def loss_of(of: Job) -> float:
    plan = Interleaving(rounds=1, steps=2, warm_up=1)
    return measure_text(0, text(of, steps=9), "cpu", plan, lambda message: None).loss


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_script_has_the_parameters_of_its_model(family: str, standard: bool) -> None:
    model = replace(FAMILIES[family], attention="standard" if standard else "flash")
    for packed in (True, False):
        of = job(model)
        fusion = replace(of.stack.fusion, packed_projections=packed)
        of = replace(of, stack=replace(of.stack, fusion=fusion))
        found = trained(text(of))["model"].parameters()
        assert sum(parameter.numel() for parameter in found) == parameters(model)


@pytest.mark.parametrize(
    ("family", "recompute"),
    [("gpt", "none"), ("gpt", "selective"), ("llama", "full"), ("bert", "none")],
)
def test_executed_products_are_those_described(family: str, recompute: str) -> None:
    of = job(replace(FAMILIES[family], attention="standard"), recompute=recompute)
    # The next-sentence classifier's two columns are within its small kernels.
    classifier = 6 * 2 * 32 * 2 if family == "bert" else 0
    assert executed_flops(of) == pytest.approx(described_flops(of) + classifier, rel=1e-12)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation_changes_no_loss_and_runs_more(recompute: str) -> None:
    plain, again = job(GPT), job(GPT, recompute=recompute)
    assert loss_of(again) == pytest.approx(loss_of(plain), rel=1e-6)


def test_accumulation_over_micro_steps_is_one_large_batch() -> None:
    """Losses of equal batches average, so do gradients: the same weights after the step."""
    in_parts = text(job(LLAMA, global_batch=4))
    joined = "batches = [[torch.cat(both) for both in zip(*map(batch, range(2)))]]"
    at_once = in_parts.replace("MICRO_STEPS = 2, 2", "MICRO_STEPS = 2, 1")
    line = next(line for line in at_once.splitlines() if line.startswith("batches = "))
    pairs = zip(
        trained(in_parts)["parameters"],
        trained(at_once.replace(line, joined))["parameters"],
        strict=True,
    )
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_half_precision_keeps_masters(precision: str) -> None:
    ended = trained(text(job(GPT, precision=precision)))
    state = [s for own in ended["optimizer"].state.values() for s in own.values() if s.dim()]
    masters = ended.get("masters", ())
    held = bytes_of([*ended["parameters"], *masters, *state])
    width = {"fp32": 4 + 8, "bf16": 2 + 4 + 8}[precision]
    assert held == pytest.approx(width * parameters(GPT), rel=0.02)
    assert all(master.dtype == torch.float32 for master in masters)


@pytest.mark.parametrize(
    ("family", "recompute", "micro_steps"),
    [("gpt", "none", 1), ("llama", "full", 1), ("bert", "none", 2)],
)
def test_peak_memory_is_what_the_model_says(family: str, recompute: str, micro_steps: int) -> None:
    model = replace(FAMILIES[family], hidden=64, ffn=256, seq=64, vocab=200, head=16)
    of = job(model, microbatch=4, global_batch=4 * micro_steps, recompute=recompute)
    plan = Interleaving(rounds=1, steps=1)
    measured = measure_text(0, text(of, steps=9), "cpu", plan, lambda message: None).peak
    predicted = memory(of, training_step(of), stage=0)
    assert predicted.total == pytest.approx(measured, rel=0.10)
