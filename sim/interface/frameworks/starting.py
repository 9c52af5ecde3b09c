"""Start a framework's program with an emitted file, on each node of a cluster."""

from collections.abc import Mapping
from math import gcd

from sim.interface.frameworks.framework import Framework

_FIRST, _NAMED = "FIRST", "NODE0"  # a variable of scripts, and the placeholder for its value


def machines(gpus: int, node: int) -> tuple[int, int]:
    """Return the number of nodes, and the GPUs on each; all nodes have equally many.

    >>> machines(16, 8), machines(6, 8), machines(12, 8)
    ((2, 8), (1, 6), (3, 4))
    """
    each = gpus if gpus < node else gcd(gpus, node)
    return gpus // each, each


def torchrun(gpus: int, node: int, first: str = _NAMED) -> str:
    """Return the words by which torchrun starts `gpus` ranks; the words are the same on each node.

    >>> torchrun(16, 8)
    'torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint NODE0:29500'
    >>> torchrun(8, 8)
    'torchrun --standalone --nproc-per-node 8'
    """
    nodes, each = machines(gpus, node)
    if nodes == 1:
        return f"torchrun --standalone --nproc-per-node {each}"
    meeting = f"--rdzv-backend c10d --rdzv-endpoint {first}:29500"
    return f"torchrun --nnodes {nodes} --nproc-per-node {each} {meeting}"


def script(
    arguments: str, program: str, environment: Mapping[str, str], gpus: int, node: int
) -> str:
    """Return a shell script that starts a program with `arguments` (one on each line) and with the
    script's own arguments. Without `gpus` the user has to add torchrun's options."""
    inner = (f"    {line}" for line in arguments.splitlines())
    exports = (f"export {name}={value}" for name, value in environment.items())
    first = f'"${{{_FIRST}:?the name of the first node}}"'
    launch = torchrun(gpus, node, first) if gpus else "torchrun"
    lines = ("#!/bin/bash", *exports, "ARGUMENTS=(", *inner, ")")
    return "\n".join((*lines, f'{launch} {program} "${{ARGUMENTS[@]}}" "$@"'))


def told(framework: Framework, environment: Mapping[str, str], gpus: int, node: int) -> str:
    """Say how to start an emitted file on each node, with capitals for values that only the user
    knows."""
    nodes, each = machines(gpus, node)
    how = framework.starts
    for word, meaning in (("TORCHRUN", torchrun(gpus, node)), ("NODES", nodes), ("EACH", each)):
        how = how.replace(word, str(meaning))
    if framework.script:
        how = f"{f'{_FIRST}={_NAMED} ' * (nodes > 1)}bash FILE {how}"
    else:
        how = " ".join([*(f"{key}={value}" for key, value in environment.items()), how])
    named = f" ({_NAMED}: name of the first node)" * (nodes > 1)
    lacks = f"; FILE still lacks {framework.lacks}" * bool(framework.lacks)
    return f"run on each node, with the words in capitals replaced{named}: {how}{lacks}"
