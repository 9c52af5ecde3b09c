"""A layer with attention and feed-forward block side by side: both read its input.

Wang and Komatsuzaki 2021 (GPT-J), section "Architecture". GPT-NeoX has a norm in front of each part
(Black et al. 2022, arXiv 2204.06745, section 2.1); GPT-J, Phi and Falcon have one norm.
"""

from dataclasses import replace
from typing import Literal

from sim.config.dataclass import dataclass
from sim.model import attention, feed_forward
from sim.model.execution import Execution
from sim.model.kernels import MemoryBound
from sim.model.operators import Operator, belonging, dropout_add, normalise, scoped


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Number of `norms` in front of the two parts: one for both, or one for each."""

    norms: Literal[1, 2] = 1


SETTINGS = Parallel


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    norm = normalise(run, "attention norm", run.local)
    first = attention.operators(run)
    second = (
        (normalise(run, "ffn norm", run.local, residual=False),) if run.block.norms == 2 else ()
    )
    inner = feed_forward.operators(run)
    if second:
        second = (replace(second[0], beside=norm.name),)
    else:
        inner = (replace(inner[0], reads=(norm.name,)), *inner[1:])
    return (
        *scoped("attn", (norm, *first)),
        *scoped("mlp", (*second, *belonging("mlp", inner))),
        summed(run),
        dropout_add(run, "ffn residual", run.local),
    )


def summed(run: Execution) -> Operator:
    """Return the sum of both parts. The kernel reads two tensors and writes one; torch.compile
    joins it with the residual sum."""
    size = float(run.local * run.model.hidden * run.width)
    passes, launches = (1, 0) if run.fusion.compiled else (3, 1)
    kernel = MemoryBound(name="sum of parts", bytes=passes * size, launches=launches)
    return Operator(name="sum of parts", forward=(kernel,), inputs=2 * size)
