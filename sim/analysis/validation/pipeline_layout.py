"""Megatron's way to write which layers a pipeline's chunks hold: "Et*4|(t*4|)*14tmL".

Source: Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py: E is the
embedding, t a transformer layer, m multi-token prediction, L the loss; | ends a chunk, *n repeats
what stands before it.
"""

import re

_REPEATED = re.compile(r"(?:\(([^()]*)\)|([EtmL|]))\*(\d+)")


def layers_of(layout: str) -> tuple[int, ...]:
    """The layers of each chunk, in the order of the model. Raises `ValueError`.

    >>> layers_of("Et*2|(t*3|)*2tmL")
    (2, 3, 3, 1)
    """
    text = layout.replace(" ", "").replace(",", "")
    while (written := _REPEATED.sub(_written_out, text)) != text:
        text = written
    chunks = [chunk for chunk in text.split("|") if chunk]
    if not re.fullmatch(r"Et*(\|t*)*m*L", text):
        raise ValueError(f"pp_layout = {layout!r}; write it like 'Et*4|(t*4|)*14tmL'")
    return tuple(chunk.count("t") for chunk in chunks)


def _written_out(match: re.Match[str]) -> str:
    group, letter, times = match.groups()
    return str(group if group is not None else letter) * int(times)
