"""A pass forward without gradients: the operators of training, on any number of tokens.

The tokens of a step, whatever sequences they belong to, are the rows of the blocks: a decode step
has one row for each sequence, a prompt one for each of its tokens. Only the core of attention knows
of sequences. It becomes kernels that read a cache (`sim.jobs.generation.attention`),
and a state in its place is read and written once a step.
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

_SCAN = "scan"  # of states in place of attention, `sim.model.state_space`
LOGITS = "logits all-gather"  # by the collective library (vllm, layers/logits_processor.py)
_LOSS = ("cross-entropy", "metrics")  # operators of the head that training alone has

# Passes over the logits of a sampled token: the division by the temperature, the softmax (three
# readings and a writing, `sim.model.blocks.head`), the choice; sorting for top-p is not counted.
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
        """The recipe of the linear layers, of which only the products forward exist. Tokens go to
        experts in its format (deepseek-ai/DeepEP, low_latency_dispatch, use_fp8 = True)."""
        named = self.stack.recipe(self.layout.precision, "", where="generation, precision")
        if named is None:
            return None
        forward = replace(named, products=("forward",), weights="primary", dispatches=True)
        return forward.fitted(transposes=False, sharded=False)

    def run(self, rows: int) -> Execution:
        """The execution of so many tokens, rounded up where tp ranks divide them."""
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

    def body(self, rows: int) -> Iterator[tuple[Item, int]]:
        """The kernels and collectives of the embedding and of all layers but for the cores of
        attention and of states, and how often each runs."""
        run = self.run(rows)
        for operator in operators("embedding", run):
            yield from ((item, 1) for item in operator.forward)
        for kind, often in self.kinds.items():
            _, own = specialised(kind, run)
            for operator in operators(kind, run):
                if operator.name in (CORE, _SCAN):
                    continue
                for item in operator.forward:
                    yield _of_hit_experts(item, own), often

    def scans(self, rows: int) -> Iterator[tuple[Item, int]]:
        """The kernels that make states of so many tokens of a prompt, and how often each runs."""
        run = self.run(rows)
        for kind, often in self.kinds.items():
            for operator in operators(kind, run):
                if operator.name == _SCAN:
                    yield from ((item, often) for item in operator.forward)

    @cached_property
    def state_layers(self) -> int:
        """The number of layers with a state."""
        run, count = self.run(1), 0
        for kind, often in self.kinds.items():
            count += often * any(operator.name == _SCAN for operator in operators(kind, run))
        return count

    @cached_property
    def state_bytes(self) -> float:
        """Bytes of a sequence's states on a rank, in half precision, in all layers."""
        run = self.run(1)
        held = sum(
            often * float(getattr(specialised(kind, run)[1].block, "held", 0))
            for kind, often in self.kinds.items()
        )
        return run.width * held / self.layout.tp

    def head(self, rows: int) -> Iterator[tuple[Item, int]]:
        """Logits of so many sequences, gathered, and the choice of their next tokens."""
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
        """The kernel of attention of each kind of layer, the model as the layer sees it, and the
        number of the layers."""
        run = self.run(1)
        found = []
        for kind, often in self.kinds.items():
            _, own = specialised(kind, run)
            for operator in operators(kind, run):
                if operator.name == CORE:
                    (kernel,) = (i for i in operator.forward if isinstance(i, Attention))
                    found.append((kernel, own.shape, often))
        return tuple(found)

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
    """The operators of a block of this kind."""
    module, own = specialised(kind, run)
    return (operator for operator in module.operators(own) if operator != Operator())


def checked(model: Model, where: str) -> Transformer:
    """The model as servers run it, with fused attention. Raises `InputError` for a model that does
    not generate tokens one after the other."""
    check_layers(model)
    if not getattr(model, "causal", False) or model.decoder_seq:
        fault = f"{model.name or 'this model'} does not write a text token by token"
        raise InputError(where, fault, "name a decoder, such as llama3-8b")
    shape = _windowed(cast(Transformer, model))
    return replace(shape, attention="flash")


def chunked(model: Transformer) -> bool:
    """Whether some layers see the tokens of their own chunk of a sequence only."""
    return bool(model.chunk) or any(entry.get("chunk") for entry in model.blocks.values())


def _windowed(model: Transformer) -> Transformer:
    """Chunks of a sequence as windows of their length: a cache holds a whole chunk at most. The
    rows of a step are of several sequences, and have no chunks."""
    if not chunked(model):
        return model
    blocks = {
        name: {"window" if key == "chunk" else key: value for key, value in entry.items()}
        for name, entry in model.blocks.items()
    }
    return replace(model, chunk=0, window=model.window or model.chunk, blocks=blocks)


def _of_hit_experts(item: Item, run: Execution) -> Item:
    """A grouped product of all experts of a rank becomes that of the experts that tokens reach.

    Of T tokens that choose k of E experts each, an expert gets none with probability (1 - k/E)^T.
    """
    if not (isinstance(run.block, Experts) and isinstance(item, Gemm) and item.batch > 1):
        return item
    layer = Layer(run)
    tokens = layer.tokens * layer.ep * layer.etp
    hit = layer.experts * (1.0 - (1.0 - layer.own.chosen) ** tokens)
    most = max(1, ceil(hit))
    return replace(item, batch=most, m=max(1, round(layer.rows / hit)))
