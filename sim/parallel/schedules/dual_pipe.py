"""DualPipeV: two chunks a stage on a V-shaped way, forward and backward passes in pairs.

DeepSeek-AI 2024, arXiv 2412.19437 (DualPipe), cut in half as in deepseek-ai/DualPipe, in the order
of PyTorch's `ScheduleDualPipeV`. The passes of a pair run one after the other here, as PyTorch runs
them; what overlapping them would hide is not modelled.
"""

from collections import deque
from collections.abc import Iterator

from sim.parallel.schedule import Entry
from sim.program.actions import Action, read
from sim.program.schedule import Schedule, in_a_v


def dualpipev(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """The order of every stage, eight phases each."""
    orders = (tuple(_DualPipeV(stages, stage, microbatches).order()) for stage in range(stages))
    return Schedule(tuple(orders), in_a_v(stages), "dualpipev")


class _DualPipeV:
    """One stage: microbatches of each kind and chunk in turn, weight gradients in a queue."""

    def __init__(self, stages: int, stage: int, microbatches: int) -> None:
        self.before, self.behind = stage, stages - stage - 1
        self.paired = microbatches - 2 * stages + stage + 1
        self.done: dict[tuple[str, int], int] = {}
        self.weights: deque[Action] = deque()

    def order(self) -> Iterator[Action]:
        yield from self._run("F0 " * (2 * self.behind))
        yield from self._run("F0 F1 " * (self.before + 1))
        for _ in range(self.behind):
            yield from self._run("I1")
            yield from self._weight()
            yield from self._run("F1")
        yield from self._run("F0 B1 F1 B0 " * self.paired)
        yield from self._run("B1 F1 B0 " * self.behind)
        yield from self._drain()

    def _run(self, asked: str) -> Iterator[Action]:
        """The next microbatch of each kind and chunk."""
        for kind, chunk in read(asked):
            counted = ("F" if kind == "F" else "B"), chunk
            number = self.done.get(counted, 0)
            self.done[counted] = number + 1
            yield Action(kind, number, chunk)
            if kind == "I":
                self.weights.append(Action("W", number, chunk))

    def _weight(self) -> Iterator[Action]:
        """The oldest weight gradient that is put off, if any."""
        if self.weights:
            yield self.weights.popleft()

    def _drain(self) -> Iterator[Action]:
        """The last backward passes; in the second half weight gradients fill the bubble."""
        own = self.before + 1
        for place in range(2 * own):
            yield from self._run(("B" if place < own else "I") + ("0" if place % 2 else "1"))
        for _ in range(self.behind):
            yield from self._weight()
            yield from self._run("I0")
        for _ in range(own):
            yield from self._weight()


def _two_per_stage(stages: int) -> int:
    return 2 * stages


SCHEDULES = (
    Entry(
        name="dualpipev",
        paper="DeepSeek-AI 2024, arXiv 2412.19437; PyTorch ScheduleDualPipeV",
        order=dualpipev,
        chunks=2,
        least=_two_per_stage,
        splits_backward=True,
    ),
)
