"""Layers of a decoder that read the result of an encoder, its `memory`.

Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3. Each layer has a projection of its own from
the memory to keys and values; queries come from the decoder's tokens.
"""

from dataclasses import replace

from sim.config.errors import InputError
from sim.model import attention
from sim.model.execution import Execution
from sim.model.kernels import MemoryBound
from sim.model.operators import Operator
from sim.model.tensor_parallel import column_linear, row_linear


def decoded(run: Execution) -> Execution:
    """Return the run with the decoder's sequences, if the model has a decoder. Raises `InputError`
    for context parallelism."""
    if not run.model.decoder_seq:
        return run
    if run.sharding.cp > 1:
        fault = f"cp = {run.sharding.cp}: attention to an encoder that ranks divide is not modelled"
        raise InputError("plan", fault, "set cp = 1")
    return replace(run, model=replace(run.shape, seq=run.shape.decoder_seq))


def cross_attention(run: Execution) -> tuple[Operator, ...]:
    """Return attention to the encoder: queries of the decoder's tokens, keys and values of the
    encoder's tokens, core and projection out. `run` has the encoder's sequences."""
    decoder = decoded(run)
    model = replace(decoder.shape, qk_norm="none")
    across = replace(decoder, memory=run.model.seq, model=model)
    queries = column_linear(
        decoder, "cross q", (decoder.query_width,), bias=decoder.shape.biased("qkv"), normed=True
    )
    core = attention.core(across)
    reads = (queries.name, "cross kv")
    output = row_linear(
        decoder, "cross output", decoder.output_width, bias=decoder.shape.biased("attention output")
    )
    return (queries, _keys(run), replace(core, name="cross core", reads=reads), output)


def _keys(run: Execution) -> Operator:
    """Return the projection from the memory to keys and values. All layers share one kept memory
    (`memory`), unless each layer casts it. Its gradients are added up layer by layer."""
    widths = (run.kv_width, run.value_width)
    packed = (sum(widths),) if run.fusion.packed_projections else widths
    made = column_linear(run, "cross kv", packed, bias=run.shape.biased("qkv"))
    keys = attention.without_key_bias(run, made)
    added = MemoryBound(
        name="memory grad sum", bytes=float(3 * run.local * run.model.hidden * run.width)
    )
    kept = 0.0 if run.keeps("cross kv") else keys.saved_for_weights
    return replace(
        keys,
        input_gradient=(*keys.input_gradient, added),
        inputs=0.0,
        saved_for_weights=kept,
        made=kept,
    )


def memory(run: Execution) -> Operator:
    """Return the operator that keeps the encoder's result once for all layers of the decoder."""
    size = float(run.local * run.model.hidden * run.width)
    return Operator(name="memory", saved=size, made=size)
