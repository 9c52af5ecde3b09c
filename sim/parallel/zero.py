"""ZeRO stages 2 and 3: gradients leave at every backward pass, weights come when they are needed.

Stage 3 is FSDP (Zhao et al. 2023, section 3; Rajbhandari et al. 2020, section 5): before a layer
runs, forward and again backward, its weights are gathered from all replicas, the next layer's
while this one computes; behind its backward pass its gradients are reduced and scattered. One
communicator does both, so they queue behind each other in the order in which they are issued.
"""

from collections.abc import Iterator, Sequence

from sim.parallel.data import STREAM, reduced, weights_gathered
from sim.parallel.job import Job
from sim.parallel.memory import gathered_use
from sim.parallel.piece import Piece
from sim.program.memory import MemoryUse
from sim.program.operations import INPUT, After, Communicate, Compute, Operation, Recent

_AHEAD = 2  # layers whose weights are whole at once: the running one and the next


def sharded_pass(
    job: Job, pieces: Sequence[Piece], *, gathers: bool, reduces: bool
) -> list[Operation]:
    """The operations of one pass, block by block: gather two; then compute one, reduce its
    gradients, gather the next, and so on."""
    done: list[Operation] = []
    names = [f"layer {number}" for number in range(len(pieces) - 1)] + [""]
    fetched = {id(piece): _Fetched(job, piece) for piece in pieces} if gathers else {}
    for number in range(min(_AHEAD, len(pieces)) if gathers else 0):
        done += fetched[id(pieces[number])].gather(number, names)
    for number, piece in enumerate(pieces):
        after: After = (INPUT,) if number == 0 else ()
        use = piece.memory
        if gathers and fetched[id(piece)].calls:
            after = (*after, f"weights {number}")
            use = fetched[id(piece)].used
        done.append(Compute(name=names[number], work=piece.work, after=after, memory=use))
        if reduces:
            done += reduced(
                job,
                piece.block.parameters,
                f"gradients {number}",
                after=(names[number],),
                stream=STREAM,
            )
        if gathers and number + _AHEAD < len(pieces):
            done += fetched[id(pieces[number + _AHEAD])].gather(number + _AHEAD, names)
    return done


class _Fetched:
    """A block whose weights are gathered, `used` and given back."""

    def __init__(self, job: Job, piece: Piece) -> None:
        self.calls = weights_gathered(job, piece.block.parameters)
        self.whole = gathered_use(job, piece.block)
        back = {part: -size for part, size in self.whole.kept.items()}
        self.used = piece.memory.then(MemoryUse(back))

    def gather(self, number: int, names: Sequence[str]) -> Iterator[Communicate]:
        """The gathering of the weights, once those two blocks back have been used."""
        if not self.calls:
            return
        back = number - _AHEAD
        ahead: After = (Recent(-back),) if back < 0 else (names[back],)
        name = f"weights {number}"
        yield Communicate(
            name=name, calls=self.calls, after=ahead, stream=STREAM, memory=self.whole
        )
