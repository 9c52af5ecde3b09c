"""Recurrent layers: products of the parts, and what bounds their time."""

from dataclasses import replace

import pytest

from sim.hardware import device
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import MemoryBound
from sim.model.recurrent_kernels import Recurrence

LSTM = Recurrence(
    name="", m=64, n=2048, k=512, precision="fp16", steps=100, layers=3,
    whole=((2048, 256), (2048, 512), (2048, 512)), stepwise=((2048, 512),),
)  # fmt: skip


@pytest.mark.parametrize("steps", [1, 2, 3, 100])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("backward", [False, True])
def test_each_layer_multiplies_its_state_once_a_step(
    steps: int, directions: int, backward: bool
) -> None:
    kernel = replace(LSTM, steps=steps, batch=directions, backward=backward)
    matrices = sum(rows * columns for rows, columns in (*LSTM.whole, *LSTM.stepwise * 3))
    passes = 1 + backward
    assert kernel.flops == passes * 2 * directions * LSTM.m * steps * matrices


def test_steps_wait_for_one_another_and_layers_run_side_by_side() -> None:
    """Twice the steps take nearly twice as long; three layers less than three times one."""
    a100 = device.load("a100-80gb-sxm")
    one = replace(LSTM, layers=1, whole=((2048, 512),))
    three = replace(LSTM, whole=((2048, 512),) * 3)
    times = [kernel_time(kernel, a100) for kernel in (one, replace(one, steps=200), three)]
    assert 1.9 < times[1] / times[0] <= 2
    assert times[0] < times[2] < 3 * times[0]


def test_a_recurrence_is_no_faster_than_its_flops_and_launched_kernel_by_kernel() -> None:
    a100 = device.load("a100-80gb-sxm")
    assert kernel_time(LSTM, a100) > LSTM.flops / a100.peak_rate("fp16")
    assert LSTM.launches == 3 + 3 * LSTM.steps + (LSTM.steps + 3 - 1)
    products = [part for part, _ in LSTM.parts if not isinstance(part, MemoryBound)]
    assert {part.precision for part in products} == {"fp16"}
