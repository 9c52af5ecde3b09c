"""Bytes per rank: model state, activations in flight, transients, what the allocator holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sim.model.kernels import Allocator, Gradients, Item, LayerWork, Overlap, Precision
from sim.model.optimizer import OptimizerName, gradient_width, weight_width
from sim.program import Collective

Chunk = Sequence[LayerWork]

# Bytes of fp32 moments a parameter: Adam's and LAMB's two, the momentum of SGD.
MOMENTS: dict[OptimizerName, int] = {"adam": 8, "lamb": 8, "sgd": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Bytes a parameter of what outlives a step, before ZeRO (Rajbhandari et al. 2020) divides it.

    ZeRO-1 divides `master` and `moments` by `dp`, ZeRO-2 also `gradients`, ZeRO-3 also `weights`.
    `fresh` gradients live from a backward pass to their accumulation behind it; `update` lives
    only while the optimizer steps, on the share that the rank updates; `gather` are the copies
    through which ZeRO-1 gathers weights. `growing` gradients are not there before the backward
    pass that makes them; under DDP they are views of its buckets, which stay, and those of earlier
    micro-steps lie `beside` them.
    """

    weights: float
    gradients: float
    master: float
    moments: float
    fresh: float = 0.0
    update: float = 0.0
    gather: float = 0.0
    growing: bool = False
    beside: float = 0.0
    zero: int = 0
    dp: int = 1

    def share(self, stage: int) -> float:
        """What a rank holds of something that ZeRO divides from `stage` on."""
        return 1.0 / self.dp if self.zero >= stage else 1.0

    def parts(self, parameters: float) -> dict[str, float]:
        """Bytes of a rank with so many parameters."""
        return {
            "weights": parameters * self.weights * self.share(3),
            "gradients": parameters * self.gradients * self.share(2),
            "optimizer": parameters * (self.master + self.moments) * self.share(1),
        }


def state(
    *,
    precision: Precision,
    optimizer: OptimizerName = "adam",
    gradients: Gradients = "fused",
    zero: int = 0,
    dp: int = 1,
    fused: bool = True,
    master: bool = True,
    allocator: Allocator | None = None,
) -> State:
    """The bytes a parameter of mixed-precision training.

    Half-precision weights (2), gradients (2, or 4 in an fp32 buffer), an fp32 copy of the weights
    (`master`, 4) and the moments: 16 bytes for Megatron's fp16, 18 with fp32 gradients
    (Korthikanti et al. 2022; Rajbhandari et al. 2020, section 3.1), 20 for nanotron with data
    parallelism. The step itself casts half-precision gradients to fp32 (4, Megatron-LM's
    optimizer.py) and, unless fused, takes one more moment's worth (4, torch's for-each Adam).

    >>> s = state(precision="fp16", gradients="buffer")
    >>> s.weights + s.gradients + s.master + s.moments
    16.0
    """
    allocator = allocator or Allocator()
    weight = float(weight_width(precision))
    mixed = weight < 4
    gradient = gradient_width(precision, gradients)
    half = weight if allocator.half_gradients and gradient > weight else 0.0
    cast = 4.0 if mixed and gradient < 4 else 0.0
    buckets = dp > 1 and zero < 2
    return State(
        weights=weight,
        gradients=gradient + (half if dp > 1 else 0.0),
        master=4.0 if mixed and master else 0.0,
        moments=float(MOMENTS[optimizer]),
        fresh=half if dp == 1 else 0.0,
        update=cast + (0.0 if fused else 4.0),
        gather=weight * (1 + 1 / dp) if allocator.gather_copies and zero and dp > 1 else 0.0,
        growing=gradients == "fresh" and not buckets,
        beside=weight if gradients == "fresh" and buckets else 0.0,
        zero=zero,
        dp=dp,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one rank by part at its worst moment, and at rest.

    `parts` add up to `total`, the most that tensors take at once; `rest` is what the end of the
    optimizer step leaves allocated; `fragmented` what the allocator reserves besides and cannot
    give back.
    """

    parts: dict[str, float]
    rest: float
    fragmented: float

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def reserved(self) -> float:
        return self.total + self.fragmented

    @property
    def largest(self) -> str:
        return max(self.parts, key=lambda part: self.parts[part])

    def fits(self, capacity: float) -> bool:
        """Whether a device offers enough: `capacity` is its memory less context and NCCL."""
        return self.reserved <= capacity


def rank_memory(
    chunks: Sequence[Chunk],
    *,
    kept: State,
    allocator: Allocator | None = None,
    schedule: str = "1f1b",
    stage: int = 0,
    stages: int = 1,
    microbatches: int = 1,
    gathered: float = 0.0,
    output: float = 0.0,
    tied: float = 0.0,
) -> Memory:
    """Memory of a rank that holds `chunks`, each a row of layers (embedding and head are such).

    The worst moment is the larger of two: a pass, with the activations of all microbatches in
    flight and the transients of the neediest layer, or the optimizer step with its temporaries.
    `gathered` are the bytes of a layer's whole input where tensor-parallel ranks gather it
    (sequence parallelism), `output` those of a rank's share of it, which it hands to the next
    stage, `tied` those of the gradient of a tied output matrix, where it waits for the embedding's.
    """
    allocator = allocator or Allocator()
    parameters = sum(work.parameters for chunk in chunks for work in chunk)
    held = kept.parts(parameters)
    held["buffers"] = allocator.workspace + allocator.gather_buffers * gathered
    transient = max((work.transient for chunk in chunks for work in chunk), default=0.0)
    running = {
        "activations": _in_flight(
            chunks,
            schedule,
            stage,
            stages,
            microbatches,
            output if allocator.keeps_outputs and stage < stages - 1 else 0.0,
        ),
        "transient": transient + parameters * kept.fresh + _unsharded(chunks, kept),
        "communication": max(_queued(chunk, allocator.run_ahead) for chunk in chunks),
    }
    share = parameters * kept.share(1)
    stepping = {"optimizer step": share * kept.update + parameters * kept.gather}
    passing = held | running
    if stages == 1 and (kept.growing or kept.beside):
        passing = _worst_layer(chunks[0], held | running, kept, microbatches, tied)
    moment = max(passing, held | stepping, key=_sum)
    lazy = share * kept.moments if allocator.lazy_state else 0.0
    return Memory(
        parts={part: size for part, size in moment.items() if size},
        rest=sum(held.values()) + parameters * kept.gather,
        fragmented=min(lazy, transient),
    )


def _sum(parts: Mapping[str, float]) -> float:
    return sum(parts.values())


def _worst_layer(
    chunk: Chunk, parts: Mapping[str, float], kept: State, microbatches: int, tied: float
) -> dict[str, float]:
    """The worst moment of a step's last backward pass, where the step began without gradients.

    Layer by layer from the last, activations go and gradients come, unless earlier micro-steps
    left them. A tied matrix's gradient waits for the embedding's, and then for the sum of both.
    """
    whole = sum(work.parameters for work in chunk)
    each = parts["gradients"] / max(1.0, whole)
    there = parts["gradients"] + (whole * kept.beside if microbatches > 1 else 0.0)
    grown = 0.0 if kept.growing and microbatches == 1 else there
    extra = parts["transient"] - max(work.transient for work in chunk)
    alive, waiting = sum(work.saved for work in chunk), 0.0
    moments = []
    for number, work in reversed(list(enumerate(chunk))):
        summed = tied if number == 0 else 0.0
        transient = work.transient + extra + waiting + summed
        moments.append({**parts, "activations": alive, "transient": transient, "gradients": grown})
        alive, waiting = alive - work.saved, tied
        grown = min(there, grown + each * work.parameters)
    return max(moments, key=_sum)


def _unsharded(chunks: Sequence[Chunk], kept: State) -> float:
    """ZeRO-3 gathers a layer's weights before it runs: the running one and the next (FSDP)."""
    if kept.zero < 3 or kept.dp == 1:
        return 0.0
    return 2 * kept.weights * max(work.parameters for chunk in chunks for work in chunk)


def _in_flight(
    chunks: Sequence[Chunk],
    schedule: str,
    stage: int,
    stages: int,
    microbatches: int,
    output: float,
) -> float:
    """The most bytes of activations alive at once."""
    sizes = [sum(work.saved for work in chunk) + output for chunk in chunks]
    ahead = warm_up(schedule, stage, stages, microbatches, len(chunks))
    return _most_alive(sizes, ahead, stages, microbatches)


def warm_up(schedule: str, stage: int, stages: int, microbatches: int, chunks: int = 1) -> int:
    """Forward passes that a stage has ahead of its backward passes in the steady state.

    GPipe (Huang et al. 2019) and a naive pipeline: all m, or one. 1F1B (Narayanan et al. 2019):
    p - stage, at most m. Interleaved (Narayanan et al. 2021, section 2.2; Megatron-LM,
    schedules.py): 2 (p - stage - 1) + (v - 1) p + 1 of m v.

    >>> [warm_up("1f1b", stage, 4, 8) for stage in range(4)]
    [4, 3, 2, 1]
    >>> warm_up("interleaved", 0, 8, 64, 3)
    31
    """
    everything = microbatches * chunks
    if schedule == "gpipe":
        return everything
    if stages == 1 or schedule in ("none", "naive"):
        return min(chunks, everything)
    if chunks > 1:
        ahead = 2 * (stages - stage - 1) + (chunks - 1) * stages + 1
        return everything if microbatches == stages else min(ahead, everything)
    return min(stages - stage, everything)


def _most_alive(sizes: Sequence[float], ahead: int, stages: int, microbatches: int) -> float:
    """Play forward and backward passes over the chunks' sizes; the most alive at once.

    Passes take `stages` microbatches through a chunk, then the next chunk; backward in reverse.
    """
    chunks = len(sizes)
    if chunks == 1:
        return sizes[0] * ahead
    # Every `stages` x `chunks` passes the pattern repeats.
    passes = min(microbatches * chunks, ahead + 2 * stages * chunks)
    entering = [sizes[(index // stages) % chunks] for index in range(passes)]
    leaving = [sizes[chunks - 1 - (index // stages) % chunks] for index in range(passes - ahead)]
    changes = [sum(entering[:ahead])]
    changes += [new - old for new, old in zip(entering[ahead:], leaving, strict=True)]
    return max(accumulate(changes))


def _queued(chunk: Chunk, window: int) -> float:
    """Bytes of inputs of reduce-scatters that the forward pass leaves in a queue of launches.

    Their results replace them, so nothing but the communication stream keeps them alive.
    """
    launches, alive = 0, 0.0
    for work in chunk:
        for item in work.forward:
            if launches >= window:
                return alive
            launches += _launches(item)
            call = item.collective if isinstance(item, Overlap) else item
            if isinstance(call, Collective) and call.kind == "reduce_scatter":
                alive += call.bytes
    return alive


def _launches(item: Item) -> int:
    if isinstance(item, Collective):
        return 1
    if isinstance(item, Overlap):
        return 1 + sum(kernel.launches for kernel in item.kernels)
    return item.launches
