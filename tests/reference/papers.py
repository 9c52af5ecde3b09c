"""What the papers say that a step computes and sends, by their formulas alone.

Nothing here knows `sim`. Sizes are those of a decoder as GPT, Llama or Mixtral has it; a rank sends
(n - 1) / n of a gathered or scattered tensor among n, and twice that of a reduced one (Thakur,
Rabenseifner and Gropp 2005, ring algorithms). Microbatches of `b` sequences, tensors of 16 bits.
"""

from dataclasses import dataclass

HALF, SINGLE = 2.0, 4.0  # bytes


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A model: `heads` of queries, `groups` of keys and values; `experts` of which a token meets
    `chosen` take the place of the feed-forward network."""

    layers: int
    hidden: int
    heads: int
    groups: int
    inner: int
    gated: bool
    vocabulary: int
    tokens: int
    biases: bool
    learned_positions: bool
    tied: bool
    norms: int  # parameters of a norm for each column
    experts: int = 0
    chosen: int = 0

    @property
    def keys(self) -> float:
        """Elements of a token's key (or value)."""
        return self.hidden * self.groups / self.heads

    @property
    def network(self) -> float:
        """Weights of one feed-forward network (SwiGLU has three matrices: Shazeer 2020)."""
        return (3 if self.gated else 2) * self.hidden * self.inner


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the step is laid out: `zero` as Rajbhandari et al. 2020 number what ranks keep shards of,
    `reduced` bytes of a gradient on the network, `pieces` stages times chunks."""

    tensor: int
    context: int
    data: int  # replicas, those that experts are spread over among them
    expert: int
    stages: int
    pieces: int
    microbatches: int
    b: int
    sequence_parallel: bool
    again: bool  # full recomputation
    attention_again: bool  # full or selective recomputation
    zero: int
    reductions: int  # of gradients in a step
    reduced: float
    scattered: bool  # messages between stages are cut among tensor-parallel ranks


def share(ranks: int) -> float:
    """The part of a tensor that a rank of a ring sends to gather it."""
    return (ranks - 1) / ranks


def model_flops(model: Decoder, sequences: int) -> float:
    """FLOPs of a step: 3 x 2 x weights x tokens, and attention (Narayanan et al. 2021, appendix;
    Chowdhery et al. 2022, appendix B): 72 B s l h^2 (1 + s / 6h + V / 12 l h) for GPT."""
    h, s = model.hidden, model.tokens
    network = model.network * max(model.chosen, 1) + (h * model.experts)
    weights = 2 * h * h + 2 * h * model.keys + network
    per_token = model.layers * (2 * weights + 4 * s * h) + 2 * h * model.vocabulary
    return 3.0 * sequences * s * per_token


def executed_flops(model: Decoder, sequences: int, layout: Layout, *, flash: bool) -> float:
    """The same with what runs again: a forward pass of a layer is a third of its model FLOPs, its
    attention's are 4 s h a token (Narayanan et al. 2021, equation 3; Korthikanti et al. 2022).
    FlashAttention leaves out the masked half of the scores, and multiplies Q K' again backward,
    five products for four (Dao 2023, section 2.3)."""
    forward = 4.0 * sequences * model.layers * model.tokens**2 * model.hidden
    ends = 6.0 * sequences * model.tokens * model.hidden * model.vocabulary
    others = model_flops(model, sequences) - ends - 3 * forward
    forward, backward = (forward / 2, forward / 2 * 5 / 2) if flash else (forward, forward * 2)
    once = ends + others + forward + backward
    return once + layout.again * others / 3 + layout.attention_again * forward


def parameters(model: Decoder) -> float:
    """Narayanan et al. 2021, equation 2: 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh) for GPT."""
    h = model.hidden
    attention = 2 * h * h + 2 * h * model.keys + model.biases * (2 * h + 2 * model.keys)
    biases = model.biases * (model.inner * (2 if model.gated else 1) + h)
    network = max(model.experts, 1) * (model.network + biases) + h * model.experts
    outside = (1 if model.tied else 2) * model.vocabulary * h + model.norms * h
    positions = model.learned_positions * model.tokens * h
    return model.layers * (attention + network + 2 * model.norms * h) + outside + positions


def tensor_bytes(model: Decoder, layout: Layout) -> float:
    """Bytes that a rank of every stage sends to its tensor-parallel peers in a step.

    Two all-reduces of b s h forward and two backward in a layer (Shoeybi et al. 2019, section 3);
    with sequence parallelism as many bytes in halves, and two more gathers backward, as inputs are
    kept in shards (Korthikanti et al. 2022, section 4.2.2). What runs forward again sends again. A
    vocabulary in shards costs one all-reduce each way, and its loss three of a number a token.
    """
    x = HALF * layout.b * model.tokens * model.hidden / layout.context
    layer = (10 if layout.sequence_parallel else 8) + 4 * layout.again
    ends = (5 if layout.sequence_parallel else 4) * x
    ends += 3 * 2 * SINGLE * layout.b * model.tokens / layout.context
    received = 2 * (layout.pieces - 1) * x if layout.scattered else 0.0  # gathered where it arrives
    each = model.layers * layer * x + ends + received
    return layout.microbatches * each * share(layout.tensor)


def pipeline_bytes(model: Decoder, layout: Layout) -> float:
    """Bytes of messages between stages: b s h forward and backward for each microbatch over each
    border (Narayanan et al. 2021, section 2.2)."""
    x = HALF * layout.b * model.tokens * model.hidden / layout.context
    cut = layout.tensor if layout.scattered or layout.sequence_parallel else 1
    return 2 * (layout.pieces - 1) * layout.microbatches * x / cut


def context_bytes(model: Decoder, layout: Layout) -> float:
    """Keys and values of the whole sequence reach every rank forward and backward, and their
    gradients go back (Liu, Zaharia and Abbeel 2023; Llama Team 2024, section 3.3.2)."""
    both = 2 * HALF * layout.b * model.tokens * model.keys / layout.tensor
    times = 3 + layout.attention_again
    return model.layers * layout.microbatches * times * both * share(layout.context)


def expert_bytes(model: Decoder, layout: Layout) -> float:
    """Tokens go to the experts that they chose and come back, forward and backward (Lepikhin et al.
    2020, section 3.2; Fedus et al. 2021)."""
    tokens = layout.b * model.tokens / layout.context
    if layout.sequence_parallel:
        tokens /= layout.tensor
    once = HALF * tokens * model.chosen * model.hidden
    times = 4 + 2 * layout.again
    return model.layers * layout.microbatches * times * once * share(layout.expert)


def data_bytes(model: Decoder, layout: Layout) -> float:
    """Gradients are reduced once, as an all-reduce; of a sharded optimizer they are scattered, and
    weights gathered. Sharded gradients may be scattered behind each microbatch, sharded weights are
    gathered before its forward and its backward pass (Rajbhandari et al. 2020, section 7). Experts
    have fewer copies than what all ranks hold."""
    t, v, h = layout.tensor, -(-model.vocabulary // layout.tensor), model.hidden
    attention = (2 * h * h + 2 * h * model.keys + model.biases * (h + 2 * model.keys)) / t
    network = (model.network + model.biases * model.inner * (2 if model.gated else 1)) / t
    everywhere = 2 * model.norms * h + model.biases * 2 * h
    spread = 0.0
    if model.experts:
        spread = model.layers * model.experts / layout.expert * network
        network = h * model.experts
    ends = (2 if layout.stages > 1 or not model.tied else 1) * v * h + model.norms * h
    ends += model.learned_positions * model.tokens * h
    shared = model.layers * (attention + network + everywhere) + ends
    copies = layout.data * layout.context
    scattered = layout.reduced * layout.reductions
    gathered = HALF * (2 * layout.microbatches if layout.zero == 3 else 1)
    each = scattered + gathered if layout.zero else 2 * layout.reduced
    return each * (shared * share(copies) + spread * share(copies // layout.expert))
