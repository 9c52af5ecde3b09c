"""All arguments of Megatron-LM that are known."""

from sim.interface.frameworks.command_line import parsed, written
from sim.interface.frameworks.framework import Framework
from sim.interface.frameworks.megatron.experts import EXPERTS
from sim.interface.frameworks.megatron.layout import LAYOUT, SEARCH
from sim.interface.frameworks.megatron.model import MODEL
from sim.interface.frameworks.megatron.silent import ARGUMENTS

# What Megatron-LM does anyway, or what the stack megatron-core says of it.
_ASSUMED = (
    *("transformer-impl", "use-flash-attn", "accumulate-allreduce-grads-in-fp32"),
    *("cross-entropy-loss-fusion", "cross-entropy-fusion-impl", "moe-grouped-gemm"),
    *(
        "moe-permute-fusion",
        "overlap-p2p-communication",
        "no-async-tensor-model-parallel-allreduce",
    ),
    *("use-cpu-initialization", "deterministic-mode", "moe-router-dtype"),
)


FRAMEWORK = Framework(
    parse=parsed,
    render=written,
    table=(*MODEL, *EXPERTS, *LAYOUT),
    silent=ARGUMENTS,
    assumed=_ASSUMED,
    stack="megatron-core",
    needs="num-layers",
    search=SEARCH,
)
