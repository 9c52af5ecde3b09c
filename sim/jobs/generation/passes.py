"""A forward pass without gradients: the operators of training, on any number of tokens.

The tokens of all sequences in a step are the rows of the blocks. A decode step has one row for each
sequence, a prompt has one row for each of its tokens. Only the core of attention tells sequences
apart. It becomes kernels that read a cache (`sim.jobs.generation.attention`). Layers that have
states instead of attention read and write each sequence's state once a step.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from math import ceil
from typing import cast

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware.stack import Stack
from sim.jobs.generation.layout import Layout
from sim.model.attention_core import CORE
from sim.model.execution import Execution
from sim.model.experts.layer import Experts, Layer
from sim.model.kernels import Attention, Gemm, Item, MemoryBound
from sim.model.kinds import check_layers, is_layer, specialised
from sim.model.model import Model
from sim.model.operators import Operator, tensor_collective
from sim.model.precision import Recipe
from sim.model.transformer import Transformer

_SCAN = "scan"  # the operator of states in place of attention, `sim.model.state_space`
LOGITS = "logits all-gather"  # by the collective library (vllm, layers/logits_processor.py)
_LOSS = ("cross-entropy", "metrics")  # operators of the head that only training has

# How often sampling reads or writes the logits: division by the temperature (2), softmax (4, see
# `sim.model.blocks.head`), choice of the token (1). Sorting for top-p is left out.
_SAMPLING_PASSES, _SAMPLING_LAUNCHES = 7, 6


@dataclass(frozen=True, eq=False)
class Passes:
    """Passes of a model through the stages of a server, on one rank."""

    model: Transformer
    layout: Layout
    stack: Stack

    @cached_property
    def kinds(self) -> Counter[str]:
        """The number of layers of each kind. Modules of multi-token prediction do not run."""
        return Counter(kind for kind in self.model.kinds if is_layer(kind))

    @cached_property
    def recipe(self) -> Recipe | None:
        """The precision recipe of the linear layers, for forward products only. Tokens are sent to
        experts in its format (deepseek-ai/DeepEP, low_latency_dispatch, use_fp8 = True)."""
        named = self.stack.recipe(self.layout.precision, "", where="generation, precision")
        if named is None:
            return None
        forward = replace(named, products=("forward",), weights="primary", dispatches=True)
        return forward.fitted(transposes=False, sharded=False)

    def run(self, rows: int) -> Execution:
        """The execution of `rows` tokens, rounded up if the tp ranks divide them."""
        sharding = self.layout.sharding(self.model)
        parts = self.layout.tp if sharding.sequence_parallel else 1
        rows = parts * ceil(max(rows, 1) / parts)
        known = max(self.model.position_rows or self.model.seq, rows)
        model = replace(
            self.model,
            seq=rows,
            position_rows=known if self.model.positions == "learned" else 0,
            documents=0,
            dropout=False,
            mtp=0,
        )
        plain = self.layout.precision if self.recipe is None else "bf16"
        return Execution(
            model=model,
            microbatch=1,
            sharding=sharding,
            precision=plain,
            fusion=self.stack.fusion,
            recipe=self.recipe,
        )

    def _layers(self, rows: int) -> Iterator[tuple[Operator, int, Execution]]:
        """Yield the operators of all layers on `rows` tokens, each with the number of these layers
        and the execution with the layer's own values."""
        run = self.run(rows)
        for kind, often in self.kinds.items():
            _, layer = specialised(kind, run)
            for operator in operators(kind, run):
                yield operator, often, layer

    def body(self, rows: int) -> Iterator[tuple[Item, int]]:
        """Yield the kernels and collectives of the embedding and of all layers, and how often each
        runs. The cores of attention and the scans of states are left out."""
        for operator in operators("embedding", self.run(rows)):
            yield from ((item, 1) for item in operator.forward)
        for operator, often, layer in self._layers(rows):
            if operator.name not in (CORE, _SCAN):
                yield from ((_of_hit_experts(item, layer), often) for item in operator.forward)

    def scans(self, rows: int) -> Iterator[tuple[Item, int]]:
        """Yield the kernels that turn `rows` tokens of a prompt into states, and how often each
        runs."""
        for operator, often, _ in self._layers(rows):
            if operator.name == _SCAN:
                yield from ((item, often) for item in operator.forward)

    @cached_property
    def state_layers(self) -> int:
        """The number of layers with a state."""
        return sum(often for operator, often, _ in self._layers(1) if operator.name == _SCAN)

    @cached_property
    def state_bytes(self) -> float:
        """Bytes of a sequence's states on a rank, in all layers, in half precision."""
        run = self.run(1)
        held = sum(
            often * float(getattr(specialised(kind, run)[1].block, "held", 0))
            for kind, often in self.kinds.items()
        )
        return run.width * held / self.layout.tp

    def head(self, rows: int) -> Iterator[tuple[Item, int]]:
        """Yield the kernels and collectives that compute and gather the logits of `rows` sequences
        and choose their next tokens, and how often each runs."""
        run = self.run(rows)
        for operator in operators("head", run):
            if operator.name not in _LOSS:
                yield from ((item, 1) for item in operator.forward)
        logits = rows * self.model.vocab
        if self.layout.tp > 1:
            yield tensor_collective(run, "all_gather", LOGITS, logits), 1
        passed = float(_SAMPLING_PASSES * 4 * logits)
        yield MemoryBound(name="sampling", bytes=passed, launches=_SAMPLING_LAUNCHES), 1

    @cached_property
    def cores(self) -> tuple[tuple[Attention, Transformer, int], ...]:
        """For each kind of layer its attention kernel, the model with the layer's own values, and
        the number of these layers."""
        return tuple(
            (kernel, layer.shape, often)
            for operator, often, layer in self._layers(1)
            if operator.name == CORE
            for kernel in operator.forward
            if isinstance(kernel, Attention)
        )

    @cached_property
    def parameter_bytes(self) -> float:
        """Bytes of the weights of the fullest rank."""
        run = replace(self.run(1), model=replace(self.model, mtp=0))
        each_kind = {kind: self._bytes(kind, run) for kind in self.kinds}
        layers = [each_kind[kind] for kind in self.model.kinds if is_layer(kind)]
        each = ceil(len(layers) / self.layout.pp)
        stages = [layers[first : first + each] for first in range(0, len(layers), each)]
        ends = [self._bytes("embedding", run), self._bytes("head", run)]
        sums = [sum(stage) for stage in stages]
        sums[0] += ends[0]
        sums[-1] += ends[1]
        if self.model.tied_embeddings and self.layout.pp > 1:
            sums[-1] += ends[0]
        return max(sums)

    def _bytes(self, kind: str, run: Execution) -> float:
        """Bytes of the weights of a block on a rank."""
        return sum(
            op.parameters * (run.recipe.element if run.recipe and op.group.low else run.width)
            for op in operators(kind, run)
        )


def operators(kind: str, run: Execution) -> Iterator[Operator]:
    """The operators of a block of kind `kind`."""
    module, layer = specialised(kind, run)
    return (operator for operator in module.operators(layer) if operator != Operator())


def checked(model: Model, where: str) -> Transformer:
    """The model as servers run it, with fused attention. Raises `InputError` for a model that does
    not generate its tokens one by one."""
    check_layers(model)
    if not getattr(model, "causal", False) or model.decoder_seq:
        fault = f"{model.name or 'this model'} does not write a text token by token"
        raise InputError(where, fault, "name a decoder, such as llama3-8b")
    shape = _windowed(cast(Transformer, model))
    return replace(shape, attention="flash")


def chunked(model: Transformer) -> bool:
    """Whether there are layers in which a token sees only its own chunk of the sequence."""
    return bool(model.chunk) or any(entry.get("chunk") for entry in model.blocks.values())


def _windowed(model: Transformer) -> Transformer:
    """Replace chunks of a sequence by windows of their length, as a cache holds at most a chunk.
    The rows of a step belong to several sequences and form no chunks."""
    if not chunked(model):
        return model
    blocks = {
        name: {"window" if key == "chunk" else key: value for key, value in entry.items()}
        for name, entry in model.blocks.items()
    }
    return replace(model, chunk=0, window=model.window or model.chunk, blocks=blocks)


def _of_hit_experts(item: Item, run: Execution) -> Item:
    """Reduce a grouped product of all experts of a rank to the experts that tokens reach.

    If T tokens choose k of E experts each, an expert gets no token with probability (1 - k/E)^T.
    """
    if not (isinstance(run.block, Experts) and isinstance(item, Gemm) and item.batch > 1):
        return item
    layer = Layer(run)
    tokens = layer.tokens * layer.ep * layer.etp
    hit = layer.experts * (1.0 - (1.0 - layer.own.chosen) ** tokens)
    most = max(1, ceil(hit))
    return replace(item, batch=most, m=max(1, round(layer.rows / hit)))
