"""DualPipe and DualPipeV: forward and backward passes in pairs, microbatches from both ends.

DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1. In DualPipe half of the microbatches start at
either end of the pipeline. Every stage holds two pieces of the model, one for each direction. So
each piece is held twice, and its gradients are summed over both holders. DualPipeV is the first
half of DualPipe, as in deepseek-ai/DualPipe: each stage has two chunks on a V-shaped path, in the
order of PyTorch's `ScheduleDualPipeV`. `Schedule.pairs` says which passes may overlap. They overlap
if tokens travel to experts (`sim.parallel.pass_ops`); otherwise they run one after the other, as in
PyTorch.

With F&B the time of a pair, DualPipe's bubble on p stages is (p/2-1) (F&B + B - 3W) (table 2 of the
paper), which is exact if F = I = W. If the passes of a pair run one after the other, the next stage
need not wait for the whole pair, and the bubble is (p/2-1) F.
"""

from collections import deque

from sim.parallel.schedule import Entry
from sim.parallel.schedules.zero_bubble import bubble
from sim.program.schedule import Action, Order, Schedule, read
from sim.program.v_places import both_ways, in_a_v


def dualpipev(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """DualPipeV: the order of every stage has eight phases."""
    ranks = [_DualPipeV(stages, stage, microbatches) for stage in range(stages)]
    orders, pairs = (tuple(rank.order) for rank in ranks), (frozenset(rank.pairs) for rank in ranks)
    return Schedule(tuple(orders), in_a_v(stages), "dualpipev", tuple(pairs))


def dualpipe(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Even microbatches go from the first stage to the last, odd microbatches from last to first.

    Stages s and p-1-s run what stage s of a DualPipeV of p/2 stages runs: chunk 0 takes the
    microbatches of the nearer end.
    """
    near = dualpipev(stages // 2, microbatches // 2)
    orders = (
        *(_numbered(order, far=0) for order in near.orders),
        *(_numbered(order, far=1) for order in reversed(near.orders)),
    )
    pairs = (*near.pairs, *reversed(near.pairs))
    return Schedule(orders, both_ways(stages), "dualpipe", pairs)


def _numbered(order: Order, *, far: int) -> Order:
    """Return an order with DualPipe's numbers of microbatches, for a stage of the first half of the
    pipeline (`far` = 0) or of the second half (1)."""
    return tuple(
        Action(action.kind, 2 * action.microbatch + (action.chunk ^ far), action.chunk)
        for action in order
    )


class _DualPipeV:
    """A stage: microbatches of each kind and chunk in turn, weight gradients in a queue."""

    def __init__(self, stages: int, stage: int, microbatches: int) -> None:
        self.before, self.behind = stage, stages - stage - 1
        self.order: list[Action] = []
        self.pairs: set[int] = set()
        self._done: dict[tuple[str, int], int] = {}
        self._weights: deque[Action] = deque()
        self._fill()
        for number in range(microbatches - 2 * stages + stage + 1):
            # On the last stage the first of these pairs is not overlapped, for a smaller bubble.
            self._run("F0 B1", overlap=number > 0 or self.behind > 0)
            self._run("F1 B0", overlap=True)
        for _ in range(self.behind):
            self._run("B1")
            self._run("F1 B0", overlap=True)
        self._drain()

    def _run(self, asked: str, *, overlap: bool = False) -> None:
        """Run the next microbatch of each kind and chunk in `asked`, such as "F0 B1"."""
        if overlap:
            self.pairs.add(len(self.order))
        for kind, chunk in read(asked):
            counted = ("F" if kind == "F" else "B"), chunk
            number = self._done.get(counted, 0)
            self._done[counted] = number + 1
            self.order.append(Action(kind, number, chunk))
            if kind == "I":
                self._weights.append(Action("W", number, chunk))

    def _weight(self) -> None:
        """Run the oldest weight gradient that is put off, if any."""
        if self._weights:
            self.order.append(self._weights.popleft())

    def _fill(self) -> None:
        self._run("F0 " * (2 * self.behind))
        self._run("F0 F1 " * (self.before + 1))
        for _ in range(self.behind):
            self._run("I1")
            self._weight()
            self._run("F1")

    def _drain(self) -> None:
        """Run the last backward passes; in the second half weight gradients fill the bubble."""
        forwards = self.before + 1
        for place in range(2 * forwards):
            self._run(("B" if place < forwards else "I") + ("0" if place % 2 else "1"))
        for _ in range(self.behind):
            self._weight()
            self._run("I0")
        for _ in range(forwards):
            self._weight()


def _half_bubble(stages: int, microbatches: int, chunks: int) -> float:
    return bubble(stages // 2, microbatches // 2, chunks)


def _two_per_stage(stages: int) -> int:
    return 2 * stages


def _pairs(stages: int) -> int:
    return 2


SCHEDULES = (
    Entry(
        name="dualpipe",
        paper="DeepSeek-AI 2024, arXiv 2412.19437, figure 5",
        order=dualpipe,
        chunks=2,
        stages=2,
        group=_pairs,
        least=_two_per_stage,
        bubble=_half_bubble,
        splits_backward=True,
    ),
    Entry(
        name="dualpipev",
        paper="deepseek-ai/DualPipe; PyTorch ScheduleDualPipeV",
        order=dualpipev,
        chunks=2,
        least=_two_per_stage,
        bubble=bubble,
        splits_backward=True,
    ),
)
