"""What a software stack keeps in memory beside the tensors of the model."""

from dataclasses import dataclass
from typing import Literal

from sim.config.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """What a software stack allocates beside the tensors that autograd keeps.

    `half_gradients`: gradients of the weights' precision stay beside their fp32 buffer, for good
    under data parallelism (torch DDP's buckets), else until the backward pass has ended.
    `gather_buffers`: persistent buffers of one layer input each, into which tensor-parallel ranks
    gather. `gather_copies`: ZeRO-1 gathers the updated weights through flat copies.
    `keeps_outputs`: a stage's output lives until its backward pass.
    `run_ahead`: kernel launches that the host can be ahead of the device (CUDA's queue holds
    1024); tensors that a communication stream reads are freed when the device is there (torch
    `record_stream`), so those of all collectives in the queue are alive at once; 0 where
    communication does not record streams. `lazy_state`: the optimizer's moments are created in
    its first step, in blocks that activations left, which must be reserved anew in the second.
    `flat_step`: the step copies all gradients into flat buffers, in the weights' precision, and its
    share of them into fp32. No block that activations left is as large, so that torch, whose blocks
    of different requests are never joined, reserves these beside them.
    `reports`: whether the peak that the software prints is that of its tensors, or what torch has
    `reserved` for them.
    `workspace`: bytes of cuBLAS, for the thread of each direction (torch: 32 MiB on Hopper).
    """

    half_gradients: bool = False
    gather_buffers: int = 0
    gather_copies: bool = False
    keeps_outputs: bool = False
    run_ahead: int = 0
    lazy_state: bool = True
    flat_step: bool = False
    reports: Literal["tensors", "reserved"] = "tensors"
    workspace: Bytes = 2 * 32 * 2.0**20
