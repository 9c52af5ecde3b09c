"""Show a model in a few lines: layers, parameters, FLOPs, and the bytes that a token keeps."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sim.config import catalog
from sim.config.errors import InputError
from sim.config.readable import human_bytes
from sim.interface.document.nodes import Document, Sentence, document, table
from sim.model import reading
from sim.model.attention_core import CORE
from sim.model.block import block, operators_of
from sim.model.counts import active_parameters, model_flops, parameters, whole
from sim.model.execution import Execution
from sim.model.kernels import Attention
from sim.model.kinds import specialised
from sim.model.model import Model
from sim.model.operators import Operator
from sim.results.formatting import Cells, count, large

_WIDTH = 2  # bytes of a half-precision key, value or activation


def is_model(name: str) -> bool:
    """Whether a name or a path is a model's: a name in `models/`, or a file that describes a model.

    >>> is_model("llama3-8b"), is_model("dgx-a100-hdr")
    (True, False)
    """
    try:
        content = reading.document(catalog.find("models", name))
    except InputError:
        return name.endswith(".json")  # only a model's; reading it will report the mistake
    return "layers" in content or "kind" in content


def title(name: str) -> str:
    """Return the title of a model or topology: the name of its file without the ending. For a
    config.json, this is the name of its folder."""
    path = Path(name)
    if path.name == "config.json":
        return path.resolve().parent.name
    return path.stem if path.suffix in (".toml", ".json") else path.name


def view(model: Model, name: str) -> Document:
    """Show a model's shape, its parameters by part, and the FLOPs and kept bytes of a token.

    >>> from sim.model.reading import load
    >>> from sim.interface.document.terminal import text
    >>> print(text(view(load("llama3-8b"), "llama3-8b")))
    llama3-8b: 32 layers (dense), 4,096 hidden, 32 heads, 8 for keys, 128,256 words
      parameters       8.03 billion
        embedding       525 million
        dense           218 million  in each of 32
        head            525 million
      FLOPs              57.9 GFLOP  a token, forward and backward, in sequences of 8,192
      keys and values       128 KiB  a token, all layers, in half precision
      activations          6.63 MiB  a token in half precision, unfused; sim run shows a job's
    """
    rows = [*_parameters(model), *_traffic(model)]
    notes = (Sentence(note, "note") for note in model.notes)
    return document(f"{name}: {_shape(model)}", table(rows), *notes)


def _shape(model: Model) -> str:
    if not model.alike:
        kinds = dict.fromkeys(kind.partition(":")[0] for kind in model.kinds)
        return f"{model.layers} layers ({', '.join(kinds)})"
    fewer = f", {model.kv_heads:,} for keys" if model.kv_heads != model.heads else ""
    fewer = ", latent attention" if model.latent else fewer
    heads = f"{model.hidden:,} hidden, {model.heads:,} heads{fewer}, {model.vocab:,} words"
    return f"{model.layers:,} layers ({model.pattern}), {heads}"


def _parameters(model: Model) -> Iterator[Cells]:
    whole_count, active = parameters(model), active_parameters(model)
    yield "parameters", large(whole_count), f"{large(active)} a token" * (active != whole_count)
    run, row = whole(model, 1), Counter(model.row)
    if not model.alike:
        return
    for kind, often in row.items():
        if each := block(kind, run).count:
            yield f"  {kind}", large(each), f"in each of {often}" * (often > 1)


def _traffic(model: Model) -> Iterator[Cells]:
    flops = model_flops(model, 1) / model.tokens
    of = f"a {model.unit}"
    length = f", in sequences of {model.seq:,}" * (model.seq > 1)
    length += f" and {model.decoder_seq:,}" * (model.decoder_seq > 0)
    yield "FLOPs", f"{count(flops / 1e9)} GFLOP", f"{of}, forward and backward{length}"
    run, row = whole(model, 1), Counter(model.kinds)
    kept = sum(often * block(kind, run).saved for kind, often in row.items()) / model.tokens
    if model.alike:
        cached = sum(often * _cached(kind, run) for kind, often in row.items())
        if cached:
            yield "keys and values", human_bytes(cached), f"{of}, all layers, in half precision"
        blocks = {kind: specialised(kind, run)[1].block for kind in row}
        held = sum(often * getattr(blocks[kind], "held", 0) for kind, often in row.items())
        if held:
            yield "states", human_bytes(_WIDTH * held), "a sequence, all layers, in half precision"
    what = f"{of} in half precision, unfused; sim run shows a job's"
    yield "activations", human_bytes(kept), what


def _cached(kind: str, run: Execution) -> int:
    """Return the bytes of a token's keys and values in a layer, or of the latent vectors that
    replace them; 0 for a layer without attention."""
    if not any(map(_attends, operators_of(kind, run))):
        return 0
    _, layer = specialised(kind, run)
    latent = layer.model.latent
    return _WIDTH * (latent.kv + latent.rotary if latent else layer.kv_width + layer.value_width)


def _attends(operator: Operator) -> bool:
    fused = any(isinstance(item, Attention) for item in operator.forward)
    return fused or operator.name == CORE
