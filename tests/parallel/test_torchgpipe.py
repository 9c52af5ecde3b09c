"""ResNet-101 pipelined by torchgpipe on P40s: how much faster than one of them.

Samples/s: kakaobrain/torchgpipe, docs/benchmarks.rst @a1b4ee25. The balance is theirs, of modules:
4 of the stem, 11 of each bottleneck, 3 of the head (benchmarks/models/resnet). A P40 has its data
sheet's rates and the share of them that a V100 reaches; copies over PCIe run beside kernels. The
last microbatch, which is not run again there, is one of 150 and more.
"""

from collections.abc import Sequence

import pytest

from sim.kind import load
from sim.scenario.setup import from_scenario
from sim.simulate import answer

P40 = {
    "topology": "dgx-1-v100",
    "device.peak.fp32": "11.76 TFLOP/s",  # 2 x 3840 cores x 1.531 GHz, NVIDIA Tesla P40 data sheet
    "device.sms": 30,
    "device.clock": "1.531 GHz",
    "device.memory_bandwidth": "346 GB/s",
    "node.bandwidth": "12 GB/s",  # PCIe 3 x16
    "stack.pipeline_exchange": "overlapped",  # torchgpipe/copy.py: streams of their own
}
ALONE = 95.862  # samples/s of one GPU, batch 118, nothing run again
BOTTLENECKS = (3, 4, 23, 3)


def layers_of(modules: Sequence[int]) -> tuple[int, ...]:
    """Our layers of stages of so many modules: three of a bottleneck, four where it is a first."""
    starts = {sum(BOTTLENECKS[:stage]) for stage in range(4)}
    ends, done = [], 0
    for count in modules:
        done += count
        blocks = min(round((done - 4) / 11), 33)
        ends.append(1 + 3 * blocks + len([at for at in starts if at < blocks]) + (done == 370))
    return tuple(end - start for start, end in zip((0, *ends), ends, strict=False))


def rate(pp: int, batch: int, microbatch: int, **plan: object) -> float:
    """Samples/s."""
    settings = {"pp": pp, "global_batch": batch, "microbatch": microbatch, **plan}
    own: dict[str, object] = {"model": "resnet101", "gpus": pp, "plan.optimizer": "sgd"}
    own |= {"plan.schedule": "gpipe" if pp > 1 else "none"}
    changes = {**P40, **own, **{f"plan.{key}": value for key, value in settings.items()}}
    return batch / answer(from_scenario(load("pipedream-gnmt", changes))).step_time


@pytest.mark.parametrize(
    ("batch", "microbatch", "modules", "measured"),
    [
        (25_005, 15, (135, 235), 135.539),
        (5_400, 36, (26, 22, 33, 44, 44, 66, 66, 69), 411.662),
    ],
)
def test_a_pipeline_is_as_much_faster_as_torchgpipe_measured(
    batch: int, microbatch: int, modules: Sequence[int], measured: float
) -> None:
    stages = rate(
        len(modules), batch, microbatch, recompute="full", layers=list(layers_of(modules))
    )
    alone = rate(1, 118, 118)
    assert stages / alone == pytest.approx(measured / ALONE, rel=0.1)
