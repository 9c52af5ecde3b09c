"""ZeRO stages 2 and 3: gradients leave at every backward pass, weights come when they are needed.

Stage 3 is FSDP (Zhao et al. 2023, section 3; Rajbhandari et al. 2020, section 5): before a layer
runs, forward and again backward, its weights are gathered from all replicas, the next layer's
while this one computes; behind its backward pass its gradients are reduced and scattered. One
communicator does both, so they queue behind each other in the order in which they are issued.
"""

from collections.abc import Sequence

from sim.parallel.gradients import CAUSE, reduction
from sim.parallel.pipeline import Pass
from sim.parallel.work import Job
from sim.program import Collective, Communicate, Compute, Operation, Work

Pieces = Sequence[tuple[Work, float]]

STREAM = "data"
_AHEAD = 2  # layers whose weights are whole at once: the running one and the next


def sharded_pass(
    job: Job,
    one: Pass,
    name: str,
    after: tuple[str, ...],
    pieces: Pieces,
    *,
    gathers: bool,
    reduces: bool,
    before: tuple[str, ...] = (),
) -> list[Operation]:
    """The operations of one pass, layer by layer; the last compute operation is called `name`.

    `pieces` are the pass's works in order, each with the parameters that it needs; `before` the
    last two compute operations ahead of it, whose weights make room for its first ones.
    """
    layers = _Layers(job, one, name, after, pieces)
    layers.gathers, layers.reduces, layers.before = gathers, reduces and one.phase == "B", before
    return layers.operations()


class _Layers:
    gathers: bool
    reduces: bool
    before: tuple[str, ...]

    def __init__(
        self, job: Job, one: Pass, name: str, after: tuple[str, ...], pieces: Pieces
    ) -> None:
        self.job, self.one, self.name, self.after, self.pieces = job, one, name, after, pieces

    def operations(self) -> list[Operation]:
        """Gather two layers; then compute one, reduce it, gather the next, and so on."""
        done: list[Operation] = []
        for number in range(min(_AHEAD, len(self.pieces))):
            done += self._gather(number, self.before[number : number + 1])
        for number in range(len(self.pieces)):
            done.append(self._compute(number))
            done += self._reduce(number)
            if number + _AHEAD < len(self.pieces):
                done += self._gather(number + _AHEAD, (self._piece(number),))
        return done

    def _piece(self, number: int) -> str:
        last = number == len(self.pieces) - 1
        return self.name if last else f"{self.name} layer {number}"

    def _gather(self, number: int, after: tuple[str, ...]) -> list[Operation]:
        _, parameters = self.pieces[number]
        if not self.gathers or parameters == 0:
            return []
        call = Collective(
            kind="all_gather",
            axes=("cp", "dp"),
            bytes=parameters * self.job.stack.weight_bytes(self.job.plan.precision),
            name=self._label("weights", number),
            cause=CAUSE,
        )
        # Nothing may be gathered before the pass's own input is there: the host issues in order.
        return [
            Communicate(name=call.name, calls=(call,), after=after or self.after, stream=STREAM)
        ]

    def _compute(self, number: int) -> Operation:
        work, parameters = self.pieces[number]
        waits = (self._label("weights", number),) if self.gathers and parameters else ()
        return Compute(
            name=self._piece(number),
            work=work,
            after=(*(self.after if number == 0 else ()), *waits),
            phase=self.one.phase,
            chunk=self.one.chunk,
            microbatch=self.one.microbatch,
        )

    def _reduce(self, number: int) -> list[Operation]:
        _, parameters = self.pieces[number]
        if not self.reduces or parameters == 0:
            return []
        label = self._label("gradients", number)
        calls = reduction(self.job, parameters, label)
        return [Communicate(name=label, calls=calls, after=(self._piece(number),), stream=STREAM)]

    def _label(self, what: str, number: int) -> str:
        return f"{what} {self.name}.{number}"
