"""A part of a recommendation model on one rank (`sim.model.recommendation`).

Tables are divided over the ranks of `ep`, everything else is data parallel. Indices are sent to the
ranks that hold their rows. The sums of these rows come back while the bottom perceptron runs, and
their gradients return while its backward pass runs (facebookresearch/dlrm, dlrm_s_pytorch.py,
distributed_forward; Mudigere et al. 2022, section 4). The optimizer of tables is sparse and a part
of the backward pass: it updates only rows that were read (FBGEMM, split_table_batched_embeddings).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from math import ceil, log2

from sim.model.execution import TABLES, Execution
from sim.model.kernels import Gemm, Item, Lag, MemoryBound, Overlap
from sim.model.linear import Linear
from sim.model.network import own_layer
from sim.model.operators import Items, Matrix, Operator, kernels_of
from sim.model.recommendation import INDEX, Layer, Recommendation
from sim.program.causes import EXPERT
from sim.program.operations import Collective, Kind

# The update of tables sorts pairs of index and sample by radix; it reads and writes them once for
# each digit of 8 bits (CUB, DeviceRadixSort, onesweep). It then finds runs of equal indices, and
# updates short and long runs in two kernels (FBGEMM, embedding_backward_split_template.cu).
_DIGIT, _SAMPLE, _UPDATE_LAUNCHES = 8, 4, 5


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the operators of the part of the model, in forward order."""
    layer, model = own_layer(run.model, run.layer, "recommendation")
    if layer.part == "tables":
        return _tables_and_bottom(run, layer, model)
    if layer.part == "interaction":
        return (_interaction(run, model),)
    return (*_perceptron(run, layer.name, layer.widths, last=layer.last),)


def _tables_and_bottom(
    run: Execution, layer: Layer, model: Recommendation
) -> tuple[Operator, Operator]:
    tables = _Tables(run, model)
    forward, backward = tables.exchange("forward"), tables.exchange("backward")
    bottom = list(_perceptron(run, "bottom", layer.widths))
    ahead = [kernel for each in bottom for kernel in kernels_of(each.forward)]
    back = [kernel for each in reversed(bottom) for kernel in kernels_of(each.backward)]
    inner = [item for item in back if item.name != "bottom 0 dgrad"]  # data have no gradient
    whole = Operator(
        name="bottom",
        forward=(Overlap(collective=forward, kernels=tuple(ahead)),) if forward else tuple(ahead),
        weight_gradient=(
            (Overlap(collective=backward, kernels=tuple(inner)),) if backward else tuple(inner)
        ),
        saved_for_weights=sum(each.saved_for_weights for each in bottom),
        transient=max(each.transient for each in bottom),
        parameters=sum(each.parameters for each in bottom),
        matrices=tuple(matrix for each in bottom for matrix in each.matrices),
    )
    return tables.operator(), whole


class _Tables:
    """The tables of one rank: their sizes and their operators."""

    def __init__(self, run: Execution, model: Recommendation) -> None:
        self.run, self.model, self.ranks = run, model, run.sharding.ep
        self.parameters = model.held(self.ranks)

    @property
    def samples(self) -> int:
        return self.run.microbatch

    @property
    def own(self) -> float:
        """Elements that a rank's b samples get from all T tables of d columns: b T d."""
        return float(self.samples * len(self.model.tables) * self.model.dim)

    @property
    def indices(self) -> float:
        """Number of rows that a rank's samples look up, repeated rows counted each time."""
        return float(self.samples * len(self.model.tables) * self.model.lookups)

    def operator(self) -> Operator:
        """Return the look-ups of all ranks' samples in this rank's tables, and their update."""
        model, width = self.model, self.run.width
        return Operator(
            name="tables",
            forward=(*self._asked(), *self._awaited(self._look_up)),
            weight_gradient=self._awaited(self._update),
            saved_for_weights=INDEX * self.indices,
            made=INDEX * self.indices,
            handed=self._summed * width,
            transient=self._summed * width,
            parameters=self.parameters,
            matrices=(Matrix(int(self.parameters) // model.dim, model.dim, hidden=False),),
            group=TABLES,
        )

    @property
    def _summed(self) -> float:
        """Elements of the sums that a rank makes. Where rows are divided, a rank makes a partial
        sum for the samples of every rank."""
        return self.own * (self.ranks if self.model.division == "row" else 1)

    def _look_up(self, share: float) -> MemoryBound:
        """Return the kernel that reads each row that is looked up and writes each sum. `share` is
        the number of look-ups on the rank, relative to the mean rank."""
        read = share * self.indices * self.model.dim * self.run.width
        moved = read + self._sums(share) * self.run.width + INDEX * share * self._named
        return MemoryBound(name="look-up", bytes=moved)

    def _sums(self, share: float) -> float:
        """Elements of the sums of a rank that gets `share` times the look-ups of the mean rank.
        With whole tables the sums grow with the look-ups; otherwise every rank makes equally
        many."""
        return self._summed * (share if self.model.division == "table" else 1.0)

    def _update(self, share: float) -> MemoryBound:
        """Return the kernel that updates the tables: it sorts the indices so that equal indices
        meet, reads gradients, and reads and writes rows."""
        model, width = self.model, self.run.width
        digits = ceil(log2(max(sum(model.tables), 2)) / _DIGIT)
        sort = 2 * digits * (INDEX + _SAMPLE) * self._named
        rows = 2 * self.indices * model.dim * width
        moved = share * (sort + rows) + self._sums(share) * width
        return MemoryBound(name="table update", bytes=moved, launches=digits + _UPDATE_LAUNCHES)

    @property
    def _named(self) -> float:
        """Number of indices that a rank handles; of all ranks if columns are divided."""
        return self.indices * (self.ranks if self.model.division == "column" else 1)

    def _awaited(self, make: Callable[[float], MemoryBound]) -> Items:
        """Return a kernel of the mean rank, and the wait for the rank with the most look-ups."""
        mean, share = make(1.0), self.model.fullest(self.ranks)
        return (mean, Lag(own=(mean,), fullest=(make(share),))) if share > 1.0 else (mean,)

    def _asked(self) -> tuple[Item, ...]:
        """Return the collective that sends each index to the rank with its row, or to all ranks if
        columns are divided."""
        size = INDEX * self.indices
        if self.model.division == "column":
            return self._calls("all_gather", self.ranks * size, "indices")
        return self._calls("all_to_all", size, "indices")

    def exchange(self, way: str) -> Collective | None:
        """Return the collective that brings sums to the samples' ranks, or their gradients back. It
        is an all-to-all of b T d elements per rank. Where rows are divided, the sums are partial
        and still have to be added, so they are reduce-scattered and their gradients
        all-gathered."""
        forward, row = way == "forward", self.model.division == "row"
        kind: Kind = "all_to_all"
        if row:
            kind = "reduce_scatter" if forward else "all_gather"
        name = "pooled embeddings" if forward else "pooled embeddings grad"
        calls = self._calls(kind, self._summed * self.run.width, name)
        return calls[0] if calls else None

    def _calls(self, kind: Kind, size: float, name: str) -> tuple[Collective, ...]:
        if self.ranks == 1:
            return ()
        axes = self.run.sharding.experts
        return (Collective(kind=kind, axes=axes, bytes=size, name=name, cause=EXPERT),)


def _interaction(run: Execution, model: Recommendation) -> Operator:
    """Return the interaction: Z = X X' for the matrix X of each sample's vectors. Its result is the
    lower triangle of Z beside the dense vector; backward dX = dZ X + dZ' X (Naumov et al. 2019,
    section 2.1.4)."""
    batch, vectors, dim = run.microbatch, model.vectors, model.dim
    stacked = float(batch * vectors * dim * run.width)
    squares, kept = (
        float(batch * elements * run.width) for elements in (vectors**2, model.features)
    )
    ahead = Gemm(name="pairs", m=vectors, n=vectors, k=dim, batch=batch, precision=run.precision)
    back = replace(ahead, name="pairs grad", n=dim, k=vectors)
    return Operator(
        name="interaction",
        forward=(
            MemoryBound(name="stack vectors", bytes=2 * stacked),
            ahead,
            MemoryBound(name="lower triangle", bytes=2 * kept, launches=2),
        ),
        input_gradient=(
            MemoryBound(name="lower triangle grad", bytes=2 * kept + squares, launches=3),
            back,
            back,
            MemoryBound(name="sum of vectors' grads", bytes=4 * stacked, launches=2),
        ),
        saved=stacked,
        transient=stacked + squares,
    )


def _perceptron(
    run: Execution, name: str, widths: tuple[int, ...], *, last: bool = False
) -> Iterator[Operator]:
    """Yield linear layers with biases, a ReLU after each, and the loss after the `last`."""
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        label = f"{name} {number}" if len(widths) > 2 else name
        linear = Linear(
            run=run, name=label, rows=run.microbatch, inputs=inputs, outputs=(outputs,), bias=True
        )
        size = float(run.microbatch * outputs * run.width)
        # The loss is a sigmoid and a binary cross-entropy in fp32.
        launches, kernel = (4, "loss") if last else (1, "relu")
        yield Operator(
            name=label,
            forward=(
                *linear.forward,
                MemoryBound(name=f"{label} {kernel}", bytes=2 * size * launches, launches=launches),
            ),
            input_gradient=(
                MemoryBound(name=f"{label} {kernel} grad", bytes=3 * size, launches=launches),
                *linear.input_gradient,
            ),
            weight_gradient=linear.weight_gradient,
            saved_for_weights=float(run.microbatch * inputs * run.kept_width),
            handed=float(run.microbatch * outputs * run.handed_width),
            transient=linear.transient,
            parameters=float(linear.weights + outputs),
            matrices=linear.matrices,
        )
