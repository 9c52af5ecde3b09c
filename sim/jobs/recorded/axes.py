"""Which axes does a recording's mesh have? They follow from the ranks of its process groups."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import gcd

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Group, Recording
from sim.program.causes import CONTEXT, DATA, EXPERT, PIPELINE, TENSOR, Cause

_TOLD = 8  # the most numbers that a message lists
_MOVES = ("all_gather", "all_to_all")
_SUMS = ("all_reduce", "reduce_scatter")


def context_strides(recordings: Iterable[Recording]) -> set[int]:
    """Strides of the axes along which keys and values (or heads) move. All gathers and exchanges
    along such an axis in forward passes come right before or after fused attention. With tensor
    parallelism or experts, there is a matrix product between the call and attention."""
    found: dict[tuple[int, int], bool] = {}
    for recording in recordings:
        for axis, beside in _moves(recording):
            found[axis] = found.get(axis, True) and beside
    return {stride for (stride, _), beside in found.items() if beside}


def _moves(recording: Recording) -> Iterator[tuple[tuple[int, int], bool]]:
    """Yield the axis (stride and size) of each call that may move keys and values, and whether
    attention is next to the call."""
    families = [kernel_of(operator).family for operator in recording.operators]
    marks = [families[e.operator] if e.kind == "kernel" else "" for e in recording.events]
    before, behind = _nearest(marks), _nearest(marks[::-1])[::-1]
    for event, *near in zip(recording.events, before, behind, strict=True):
        if event.kind == "collective" and event.name in _MOVES and event.phase == "forward":
            axes = recording.groups[event.group].axes
            if len(axes) == 1 and not event.again:
                yield axes[0], "attention" in near


def _nearest(families: Sequence[str]) -> list[str]:
    """For each place, the family of the last matrix product or attention kernel up to that
    place."""
    last, found = "", []
    for family in families:
        last = family if family in ("gemm", "attention") else last
        found.append(last)
    return found


DATA_AXIS, REPLICAS_AXIS, PIPELINE_AXIS = "dp", "dp_replicate", "pp"
CONTEXT_AXIS = "cp"


def lattice(ranks: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The stride and size of each axis of a group of sorted ranks.

    >>> lattice((0, 1, 8, 9)), lattice((3,))
    (((1, 2), (8, 2)), ())
    """
    if len(ranks) < 2:
        return ()
    stride = ranks[1] - ranks[0]
    row = (i for i, rank in enumerate(ranks) if rank != ranks[0] + i * stride)
    size = next(row, len(ranks))
    return ((stride, size), *lattice(ranks[::size]))


def group_of(ranks: tuple[int, ...], where: str) -> Group:
    """The process group of sorted ranks. Raises `InputError` if the ranks do not form a lattice.

    >>> group_of((1, 3, 9, 11), "here")
    Group(first=1, axes=((2, 2), (8, 2)))
    """
    group = Group(first=ranks[0], axes=lattice(ranks))
    if tuple(sorted(group.ranks)) != ranks:
        fault = (
            f"a process group of ranks {', '.join(map(str, ranks[:8]))} ... is no axis of a mesh"
        )
        raise InputError(where, fault, "make groups whose ranks lie at equal distances")
    return group


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The size (`mesh`) and stride of each axis, and the axes `of` each group by its number. The
    fastest varying axis comes first.

    The outermost axis other than the pipeline's is data parallel, as in torch's own meshes. An axis
    is data parallel, too, if its collectives have streams of their own (as in FSDP). So is an axis
    along which gradients are summed together with the outermost axis, as experts lie within
    data-parallel ranks. Tensor parallelism needs its results at once, so its collectives are on the
    main stream. Of two data-parallel axes, the outer axis holds replicas. The axis along which
    attention gets its keys and values is context parallel.
    """

    mesh: Mapping[str, int]
    strides: Mapping[str, int]
    of: tuple[tuple[str, ...], ...]

    @property
    def data_ranks(self) -> int:
        """The number of ranks with different data: sequences, or parts of sequences."""
        return self.mesh.get(DATA_AXIS, 1) * self.mesh.get(REPLICAS_AXIS, 1) * self.sequence_ranks

    @property
    def sequence_ranks(self) -> int:
        """The number of ranks that share each sequence (context parallelism)."""
        return self.mesh.get(CONTEXT_AXIS, 1)

    def stage(self, rank: int) -> int:
        """The pipeline stage of a rank."""
        if PIPELINE_AXIS not in self.mesh:
            return 0
        return rank // self.strides[PIPELINE_AXIS] % self.mesh[PIPELINE_AXIS]

    def cause(self, group: int, name: str) -> Cause:
        """The cause under which accounts list a group's collectives of the kind `name`."""
        axes = self.of[group]
        if PIPELINE_AXIS in axes:
            return PIPELINE
        if name == "all_to_all" and CONTEXT_AXIS not in axes:
            return EXPERT
        if {DATA_AXIS, REPLICAS_AXIS} & {*axes}:
            return DATA
        return CONTEXT if CONTEXT_AXIS in axes else TENSOR


def calls_along(
    recording: Recording, axes: Axes, along: Collection[str], kinds: Collection[str]
) -> list[int]:
    """The event numbers of collectives of these `kinds` that run along at least one of the axes in
    `along`."""
    return [
        number
        for number, event in enumerate(recording.events)
        if event.kind == "collective"
        and event.name in kinds
        and not {*along}.isdisjoint(axes.of[event.group])
    ]


def every_axes(stages: Sequence[Recording]) -> Iterator[Axes]:
    """Yield the axes of each stage's recording, from the groups of all stages.

    Messages between two ranks run along the pipeline's axis. Raises `InputError` if the groups do
    not divide the ranks into axes.
    """
    stride, world = _sent_along(stages), stages[0].world
    ends = {stride, stride * len(stages)} if stride and len(stages) > 1 else {stride} - {0}
    axes = {axis for stage in stages for group in stage.groups for axis in group.axes}
    cuts = sorted({1, world, *ends, *(cut for s, n in axes for cut in (s, s * n))})
    if any(high % low for low, high in pairwise(cuts)):
        fault = f"its groups' strides {', '.join(map(str, cuts[:_TOLD]))} do not divide one another"
        raise InputError(stages[0].script, fault, "take groups that are axes of one mesh")
    names = _names(cuts, stride, stages, context_strides(stages))
    strides = dict(zip(names, cuts, strict=False))
    mesh = {name: high // low for name, (low, high) in zip(names, pairwise(cuts), strict=True)}
    for stage in stages:
        of = tuple(tuple(_within(group, strides)) for group in stage.groups)
        yield Axes(mesh=mesh, strides=strides, of=of)


def staged(recordings: Sequence[Recording]) -> list[tuple[Recording, Axes]]:
    """Recordings with their axes in the order of their pipeline stages. Raises `InputError` if a
    stage is missing or recorded twice."""
    pairs = sorted(
        zip(recordings, every_axes(recordings), strict=True),
        key=lambda pair: pair[1].stage(pair[0].rank),
    )
    first, axes = pairs[0]
    stages = [axes.stage(recording.rank) for recording, axes in pairs]
    if stages != list(range(axes.mesh.get(PIPELINE_AXIS, 1))):
        fault = f"has {axes.mesh.get(PIPELINE_AXIS, 1)} pipeline stages, of which"
        fault += (
            f" {', '.join(map(str, stages[:_TOLD]))}{' ...' * (len(stages) > _TOLD)} are recorded"
        )
        raise InputError(first.script, fault, "record it with --stages")
    return pairs


def _sent_along(recordings: Iterable[Recording]) -> int:
    """The greatest common divisor of the distances of messages; 0 if no rank sends messages."""
    return gcd(
        *(
            abs(event.peer - recording.rank)
            for recording in recordings
            for event in recording.events
            if event.kind in ("send", "recv")
        )
    )


def _names(
    cuts: Sequence[int], sent: int, recordings: Sequence[Recording], context: Collection[int]
) -> list[str]:
    """The names of the axes between neighbouring `cuts`. `sent` is the stride of the pipeline,
    `context` has the strides of context parallelism."""
    known = {**dict.fromkeys(context, CONTEXT_AXIS), sent: PIPELINE_AXIS}
    names = [known.get(cut, f"axis{cut}") for cut in cuts[:-1]]
    free = [at for at, cut in enumerate(cuts[:-1]) if cut not in known]
    data, beside, sums = free[-1:], _beside(recordings), list(_summing(recordings))
    outer = cuts[data[0]] if data else 0

    def shares_data(cut: int) -> bool:
        return cut in beside or any(_covers(g, cut) and _covers(g, outer) for g in sums)

    inner = [at for at in free[:-1] if shares_data(cuts[at])]
    for at in data:
        names[at] = REPLICAS_AXIS if inner else DATA_AXIS
    for at in inner[-1:]:
        names[at] = DATA_AXIS
    return names


def _beside(recordings: Iterable[Recording]) -> set[int]:
    """Strides of groups whose collectives are issued on streams other than the main stream."""
    found = set()
    for recording in recordings:
        main = main_stream(recording)
        numbers = {e.group for e in recording.events if e.kind == "collective" and e.stream != main}
        found |= {stride for number in numbers for stride, _ in recording.groups[number].axes}
    return found


def _summing(recordings: Iterable[Recording]) -> Iterator[Group]:
    """Yield the group of each call that sums gradients. Such a call has more bytes than a hundredth
    of the number of parameters; sums of norms have fewer."""
    for recording in recordings:
        least = recording.parameters / 100
        for event in recording.events:
            sums = event.kind == "collective" and event.name in _SUMS and event.phase != "forward"
            if sums and event.bytes > least:
                yield recording.groups[event.group]


def main_stream(recording: Recording) -> int:
    """The stream on which most kernels run."""
    launched = Counter(event.stream for event in recording.events if event.kind == "kernel")
    return launched.most_common(1)[0][0]


def _within(group: Group, strides: Mapping[str, int]) -> Iterable[str]:
    return (name for name, cut in strides.items() if _covers(group, cut))


def _covers(group: Group, cut: int) -> bool:
    """Whether a group extends along the axis that begins at a cut."""
    return any(stride <= cut < stride * size for stride, size in group.axes)
