"""All-reduces whose kernels read other GPUs' memory: serving engines use them for small tensors.

In one shot each GPU reads the whole tensor from all other GPUs and adds it up. In two shots each
GPU adds up a share of the tensor and reads the other GPUs' sums (vLLM, csrc/custom_all_reduce.cuh:
cross_device_reduce_1stage and _2stage). One shot saves a wait for other GPUs, two
shots move fewer bytes. Both need a node whose switch lets GPUs read one another.
"""

from collections.abc import Mapping

from sim.config.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DirectRates:
    """A call without bytes takes `latency`, plus `each` for every GPU beyond two, plus `second` for
    the second shot (s). A GPU reads at the rate `one` in one shot, `two` in two (B/s)."""

    latency: float
    each: float
    one: float
    second: float
    two: float

    def seconds(self, size: float, ranks: int) -> float:
        """Seconds of an all-reduce of `size` bytes, in one shot or two, whichever is faster.

        >>> rates = DirectRates(latency=4e-6, each=0.0, one=1e11, second=2e-6, two=1e11)
        >>> [round(rates.seconds(size, 4) * 1e6, 2) for size in (0, 1e5, 1e7)]
        [4.0, 7.0, 156.0]
        """
        begun = self.latency + self.each * (ranks - 2)
        one = (ranks - 1) * size / self.one
        two = self.second + 2 * (ranks - 1) / ranks * size / self.two
        return begun + min(one, two)


# Fitted on every second row of vLLM and SGLang in CUDA graphs up to 8 MiB in
# collectives/aiconfigurator_custom_allreduce.csv.gz; the median error on the other rows is 4, 3 and
# 8 %. On blackwell the fit finds no latency of a second shot: there two shots are never slower.
DIRECT: Mapping[str, DirectRates] = {
    "ampere": DirectRates(latency=5.2e-6, each=0.11e-6, one=184e9, second=8.0e-6, two=233e9),
    "hopper": DirectRates(latency=4.4e-6, each=0.06e-6, one=265e9, second=3.7e-6, two=293e9),
    "blackwell": DirectRates(latency=6.7e-6, each=0.12e-6, one=157e9, second=0.0, two=187e9),
}

_HALVES = ("all_gather", "reduce_scatter")  # the two halves of an all-reduce


def direct_seconds(kind: str, size: float, ranks: int, generation: str) -> float | None:
    """Seconds of a collective with these kernels; None where they cannot run it. An all-gather or a
    reduce-scatter counts as half of the all-reduce that engines run instead of the two."""
    rates = DIRECT.get(generation)
    if rates is None or ranks > 8 or kind not in ("all_reduce", *_HALVES):
        return None
    seconds = rates.seconds(size, ranks)
    return seconds / 2 if kind in _HALVES else seconds
