"""Context parallelism: how the attention core of a rank reaches the rest of its sequence.

- Ring (Liu et al. 2023): shares of keys and values move from rank to rank beside the kernels, with
  one kernel for each share. Backward the gradients of the shares move, too.
- Gathered ring (torch, torch/distributed/tensor/experimental/_attention.py): the kernels are as in
  a ring, but keys and values are gathered once, beside the first kernel. Backward their gradients
  go all the way round in fp32 and are summed after each kernel. torch.compile waits for each call
  immediately (torch/distributed/_functional_collectives.py, _maybe_wrap_tensor). Its graph of both
  passes merges the two gathers (torch/_functorch/compile_utils.py, fx_graph_cse).
- All-gather (Llama 3, section 3.3.2): keys and values are gathered, then one kernel runs. Backward
  keys and values are gathered again, and their gradients scattered.
- Ulysses (Jacobs et al. 2023): all-to-alls turn shares of the sequence into shares of the heads and
  back, so a kernel sees whole sequences. Ulysses has an axis of its own, which may be combined with
  a ring (USP, Fang and Zhao 2024).

Under a causal mask a contiguous share of the sequence sees all shares before it. The last rank then
sets the pace, with 2 - 1/cp times the mean work (Brandon et al. 2023, striped attention, section
3). In the balanced layout (zig-zag) each rank has two shares, one from either end of the sequence,
and all ranks do the mean work.
"""

from collections.abc import Iterator

from sim.model.execution import Execution
from sim.model.kernels import Attention, Item, Kernel, MemoryBound, Overlap
from sim.model.operators import Items, Operator
from sim.program.causes import CONTEXT
from sim.program.operations import Collective, Kind


def forward(run: Execution) -> Items:
    """Return the core's forward kernels, with the collectives in front of and beside them."""
    kernels = tuple(_kernels(run, backward=False))
    return (
        *_exchanged(run, "queries, keys and values", _inputs(run)),
        *_joined(run),
        *_with_keys(run, kernels),
        *_merged(run),
        *_exchanged(run, "outputs", run.output_width),
    )


def backward(run: Execution) -> Items:
    """Return the kernels for the gradients of Q, K and V, with their collectives."""
    kernels = tuple(_kernels(run, backward=True))
    return (
        *_exchanged(run, "outputs' gradients", run.output_width),
        *_joined(run),
        *_with_keys_back(run, kernels),
        *_exchanged(run, "gradients of queries, keys and values", _inputs(run)),
    )


def gathered(run: Execution) -> Operator:
    """Return the gather of all keys and values, where one gather serves both passes."""
    if not _gathers_once(run):
        return Operator()
    call = _keys(run, "all_gather")
    return Operator(name="gathered keys", forward=(call,), saved=call.bytes, made=call.bytes)


def _gathers_once(run: Execution) -> bool:
    sharding = run.sharding
    return sharding.way == "gathered-ring" and sharding.ring > 1 and run.fusion.compiled


# --- Kernels -------------------------------------------------------------------------------------


def _kernels(run: Execution, *, backward: bool) -> Iterator[Attention]:
    """Yield the attention kernels of the rank that has the most work."""
    model, sharding = run.shape, run.sharding
    ring, whole = sharding.ring, model.seq
    local = whole // ring
    if run.memory:
        yield _kernel(run, local, run.memory, causal=False, backward=backward)
    elif ring == 1 or not model.causal or model.window:
        yield _kernel(run, local, whole, causal=model.causal, backward=backward)
    elif sharding.way == "all-gather":
        if sharding.balanced:
            yield _kernel(run, local, whole, causal=True, backward=backward)
        else:
            yield _kernel(run, local, local, causal=True, backward=backward)
            yield _kernel(run, local, whole - local, causal=False, backward=backward)
    else:
        yield _kernel(run, local, local, causal=True, backward=backward)
        seen = local // 2 if sharding.balanced else local
        for _ in range(ring - 1):
            yield _kernel(run, local, seen, causal=False, backward=backward)


def _kernel(run: Execution, q: int, kv: int, *, causal: bool, backward: bool) -> Attention:
    """Return one attention kernel; it treats documents and chunks as sequences of their own."""
    model, ulysses, pieces = run.shape, run.sharding.ulysses, run.shape.pieces
    return Attention(
        name="attention grad" if backward else "attention",
        batch=run.microbatch * pieces,
        heads=run.heads // ulysses,
        kv_heads=max(1, run.kv_heads // ulysses),
        q=q // pieces,
        kv=kv // pieces,
        head=model.head,
        value_head=model.value_head,
        window=model.window,
        causal=causal,
        backward=backward,
        precision=run.core_precision,
    )


def _merged(run: Execution) -> Items:
    """Return the kernels that merge the outputs of a ring's kernels into an fp32 output. A fused
    merge reads both outputs and writes their sum. Torch's eager ring (_SDPAMerger) casts all
    outputs before the sum, and the sum after it. Its merge is a difference, a product and a
    difference, with five small kernels of log-sum-exps. All merges of the last rank are of whole
    shares, so this rank sets the pace."""
    times = run.sharding.ring - 1
    whole = run.sharding.way == "all-gather" or not run.shape.causal or run.shape.window
    if times == 0 or whole:
        return ()
    outputs = run.rows * run.output_width
    if _step_by_step(run):
        moved = times * 32.0 + (times + 2) * (run.width + 4)
        launches = 8 * times + times + 2
        return (MemoryBound(name="merge outputs", bytes=moved * outputs, launches=launches),)
    part = 0.5 if run.sharding.balanced else 1.0
    moved = part * times * outputs * (run.width + 8)
    return (MemoryBound(name="merge outputs", bytes=moved, launches=times),)


def _joined(run: Execution) -> Items:
    """Return the copies that torch's eager ring makes of keys and values: contiguous copies, joined
    in one tensor in front of each kernel but the last (torch, _templated_ring_attention, which does
    so even if keys and values are gathered once)."""
    if not _step_by_step(run):
        return ()
    ring = run.sharding.ring
    moved = 2.0 * ring * run.rows * (run.kv_width + run.value_width) * run.width
    return (MemoryBound(name="join keys and values", bytes=moved, launches=ring + 1),)


def _step_by_step(run: Execution) -> bool:
    """Whether torch's gathered ring runs eagerly, operation by operation."""
    sharding = run.sharding
    return sharding.way == "gathered-ring" and sharding.ring > 1 and not run.fusion.compiled


# --- Communication -------------------------------------------------------------------------------


def _inputs(run: Execution) -> int:
    """The number of columns of Q, K and V together that Ulysses exchanges."""
    return run.query_width + _sent_width(run)


def _sent_width(run: Execution) -> int:
    """Columns of K and V that are sent: several copies where K and V have fewer heads than Ulysses
    has ranks."""
    again = max(1, run.sharding.ulysses // run.kv_heads)
    return again * (run.kv_width + run.value_width)


def _exchanged(run: Execution, name: str, width: int) -> Items:
    """Return Ulysses' all-to-all of a rank's part of a tensor of `width` columns, if any."""
    if run.sharding.ulysses == 1:
        return ()
    size = float(run.rows * width * run.core_width)
    axes = run.sharding.exchanged
    return (Collective(kind="all_to_all", axes=axes, bytes=size, name=name, cause=CONTEXT),)


def _with_keys(run: Execution, kernels: tuple[Attention, ...]) -> Items:
    if run.sharding.ring == 1:
        return kernels
    gather, way = _keys(run, "all_gather"), run.sharding.way
    if way == "all-gather":
        return (gather, *kernels)
    if _gathers_once(run):
        return kernels
    if way == "gathered-ring":
        return (*_beside(run, gather, kernels[0]), *kernels[1:])
    return (Overlap(collective=gather, kernels=kernels),)


def _with_keys_back(run: Execution, kernels: tuple[Attention, ...]) -> Items:
    """Return the backward kernels with their collectives. In a ring, keys and values travel beside
    the first half of the kernels, and gradients of keys and values beside the second half."""
    if run.sharding.ring == 1:
        return kernels
    gather, scatter = _keys(run, "all_gather"), _keys(run, "reduce_scatter")
    if run.sharding.way == "all-gather":
        return (gather, *kernels, scatter)
    if _gathers_once(run):
        return (kernels[0], *_turned(run, kernels))
    if run.sharding.way == "gathered-ring":
        return (*_beside(run, gather, kernels[0]), *_turned(run, kernels))
    half = (len(kernels) + 1) // 2
    first, rest = kernels[:half], kernels[half:]
    last = (Overlap(collective=scatter, kernels=rest),) if rest else (scatter,)
    return (Overlap(collective=gather, kernels=first), *last)


def _beside(run: Execution, collective: Collective, kernel: Kernel) -> Items:
    """Return one of torch's functional collectives and a kernel. Eagerly the collective runs beside
    the kernel; compiled code first waits for the collective."""
    if run.fusion.compiled:
        return (collective, kernel)
    return (Overlap(collective=collective, kernels=(kernel,)),)


def _turned(run: Execution, kernels: tuple[Attention, ...]) -> Iterator[Item]:
    """Yield the backward kernels after the first. Each follows the sums of the previous kernel's
    gradients, and runs beside the shift of the gradients of keys and values to the next rank."""
    for kernel in kernels[1:]:
        yield _sums(run)
        yield from _beside(run, _shift(run), kernel)
    yield from (_sums(run), _shift(run))


def _sums(run: Execution) -> MemoryBound:
    """Return the kernel that adds the gradients of Q, K and V to fp32 sums: it reads and writes
    each sum and reads a gradient in half precision. Eager code also copies the sums of half a share
    and the buffer that is sent."""
    local = run.rows * (run.query_width + run.kv_width + run.value_width)
    sent = run.rows * (run.kv_width + run.value_width)
    passes, launches = (8 + run.width, 1) if run.fusion.compiled else (13 + run.width / 2, 7)
    copies = 0.0 if run.fusion.compiled else 8.0 * sent
    return MemoryBound(name="sum attention grads", bytes=passes * local + copies, launches=launches)


def _shift(run: Execution) -> Collective:
    """Return one of `ring` shifts to the next rank. Torch sends it as an all-to-all with one peer
    (permute_tensor); here it takes as long as a step of a ring's reduce-scatter."""
    ring = run.sharding.ring
    whole = ring * run.rows * (run.kv_width + run.value_width) * 4.0
    return Collective(
        kind="reduce_scatter",
        axes=run.sharding.context,
        bytes=whole / (ring - 1),
        name="gradients of keys and values",
        cause=CONTEXT,
    )


def _keys(run: Execution, kind: Kind) -> Collective:
    """Return the collective of kind `kind` on the ring's keys and values, or on their gradients."""
    sharding = run.sharding
    tokens = run.microbatch * run.model.seq
    return Collective(
        kind=kind,
        axes=sharding.context,
        bytes=float(tokens * _sent_width(run) * run.core_width / sharding.ulysses),
        name="keys and values" if kind == "all_gather" else "their gradients",
        cause=CONTEXT,
    )
