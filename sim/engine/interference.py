"""What kernels lose to a collective beside them, by what both of them use.

A collective's kernel holds its SMs alone: each CTA of NCCL takes all registers of one (S. Jeaugey,
NVIDIA/nccl issue 689). Products and attention then have (sms - ctas) / sms of their pace, and where
their grid is one CTA for each SM, those without a place wait until others have ended: the device's
own `interference`. Memory-bound kernels need few SMs and share the memory's bandwidth with what the
collective moves through it.
"""

from collections.abc import Mapping

from sim.hardware.device import Device

Losses = Mapping[str, float]
"""Shares of their pace that kernels lose, by class."""

MOST = 0.5  # what a memory-bound kernel loses to one that wants all of the bandwidth too


def losses(device: Device, *, ctas: int, moved: float) -> Losses:
    """The losses of a device's kernels beside one that holds so many SMs and moves so many bytes a
    second through memory; as a profile has measured them beside an all-reduce, where one has.

    >>> from sim.hardware.device import load
    >>> losses(load("a100-80gb-sxm"), ctas=27, moved=0.0)["gemm"]
    0.25
    """
    held = max(ctas / device.sms, device.interference) if ctas else 0.0
    shared = min(moved / (device.memory_bandwidth * device.stream.bandwidth), MOST)
    own = {"gemm": held, "attention": held, "timed": held, "stream": shared}
    return own | _measured(device) if ctas else own


def _measured(device: Device) -> dict[str, float]:
    found = device.measured.environment.overlaps if device.measured else ()
    slow = {one.kernel: one.slowdown for one in found if one.beside == "all_reduce"}
    return {kernel: 1.0 - 1.0 / max(factor, 1.0) for kernel, factor in slow.items()}
