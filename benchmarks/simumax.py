"""Reading measured kernel efficiencies from a SimuMax system file.

The file keeps achieved shares of the peak by shape: of matrix products (those of a linear layer's
forward, input gradient and weight gradient) and of fused attention.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.config import reads
from sim.config.errors import InputError
from sim.hardware.kernels.measurements import Measurement
from sim.model.kernels import Attention, Gemm


def read(path: Path) -> tuple[list[Measurement], list[Measurement]]:
    """Matrix products and attention kernels of a SimuMax system file. Raises `InputError`."""
    try:
        operations = json.loads(reads.text(path))["accelerator"]["op"]
    except (ValueError, KeyError) as error:
        raise InputError(str(path), f"is no SimuMax system file ({error})", "check it") from None
    forward = _measured(operations["sdp_fwd"], lambda given: _attention(given, backward=False))
    backward = _measured(operations["sdp_bwd"], lambda given: _attention(given, backward=True))
    return _measured(operations["matmul"], _product), forward + backward


def _measured(
    table: dict[str, Any], kernel_of: Callable[[dict[str, str]], Gemm | Attention | None]
) -> list[Measurement]:
    measured = []
    for text, share in table["accurate_efficient_factor"].items():
        kernel = kernel_of(dict(part.strip().split("=") for part in text.split(",")))
        if kernel is not None:
            seconds = _flops(kernel) / (share * table["tflops"] * 1e12)
            measured.append(Measurement(kernel=kernel, seconds=seconds))
    return measured


def _flops(kernel: Gemm | Attention) -> float:
    """As the file counts them: attention in full, also where the mask halves it."""
    return kernel.flops * (2.0 if isinstance(kernel, Attention) else 1.0)


def _product(given: dict[str, str]) -> Gemm | None:
    accumulate = given["accumulate"] == "True"
    if accumulate and given["out_dtype"] != "fp32":
        return None  # no stack described here accumulates in half precision
    m, n, k = (int(given[key]) for key in "mnk")
    batch = int(given["b"])
    return Gemm(name="product", m=m, n=n, k=k, batch=batch, accumulate=accumulate)


def _attention(given: dict[str, str], *, backward: bool) -> Attention | None:
    seq, head = int(given["seq_len"]), int(given["qk_head_dim"])
    if given["qkv_contiguous"] != "True" or head > 128:
        return (
            None  # heads above 128 are narrower in V than in Q, and SimuMax counts them otherwise
        )
    return Attention(
        name="attention",
        batch=int(given["batch"]),
        heads=int(given["head_num"]),
        kv_heads=int(given["kv_head_num"]),
        q=seq,
        kv=seq,
        head=head,
        causal=True,
        backward=backward,
    )
