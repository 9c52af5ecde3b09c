"""Kernels that inductor writes, as operators of a recording."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sim.jobs.capturing.operators import tensor_of
from sim.jobs.recorded.recording import Operator, Tensor

# Takes what tells an operator, the tensors that it reads and those that it writes.
Launched = Callable[[Callable[[], Operator], list[Any], list[Any]], None]


class Kernel:
    """A kernel of inductor: its name says what is fused in it, its source what each argument is."""

    def __init__(self, torch: Any, name: str, source: str, launched: Launched) -> None:
        self.torch, self.launched = torch, launched
        self.name = re.sub(r"^triton_|_\d+$", "", name)
        head = re.search(r"^def \w+\((.*?)\):", source, re.MULTILINE | re.DOTALL)
        listed = head[1].split(",") if head else []
        self.arguments = [one.partition(":")[0].strip() for one in listed]
        said = re.search(r"'kernel_num_gb': ([0-9.e+-]+)", source)
        self.bytes = float(said[1]) * 1e9 if said else None

    def run(self, *args: Any, **_: Any) -> None:
        """Record a launch."""
        tensors = [
            (name, one)
            for name, one in zip(self.arguments, args, strict=False)
            if isinstance(one, self.torch.Tensor)
        ]
        reads = [one for name, one in tensors if name.startswith(("in_", "arg_"))]
        writes = [one for name, one in tensors if "out_ptr" in name]
        self.launched(lambda: self._operator(reads, writes), reads, writes)

    def _operator(self, reads: list[Any], writes: list[Any]) -> Operator:
        outputs = tuple(map(tensor_of, writes))
        written = sum(one.bytes for one in outputs)
        inputs = [tensor_of(one) for one in reads]
        if self.bytes is not None:
            inputs = _read(inputs, self.bytes - written)
        name = f"inductor.{self.name}"
        return Operator(name=name, inputs=tuple(inputs), outputs=outputs, written=written)


def _read(inputs: list[Tensor], size: float) -> list[Tensor]:
    """Inputs of which so many bytes are read: the largest are sliced, or looked up in."""
    found = list(inputs)
    excess = sum(one.bytes for one in inputs) - max(size, 0.0)
    for place in sorted(range(len(inputs)), key=lambda i: -inputs[i].bytes):
        own = inputs[place]
        if excess <= 0.0 or not own.width:
            break
        kept = max(own.bytes - excess, 0.0)
        found[place] = replace(own, elements=round(kept / own.width))
        excess -= own.bytes - kept
    return found
