"""ZeRO stages 2 and 3: gradients leave at every backward pass, weights come when they are needed.

Stage 3 is FSDP (Zhao et al. 2023, section 3; Rajbhandari et al. 2020, section 5): before a layer
runs, forward and again backward, its weights are gathered from all replicas, the next layer's
while this one computes; behind its backward pass its gradients are reduced and scattered. One
communicator does both, so they queue behind each other in the order in which they are issued.
"""

from collections.abc import Sequence

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
    brought = [_gather(job, piece, number, names) if gathers else []
               for number, piece in enumerate(pieces)]  # fmt: skip
    for gather in brought[:_AHEAD]:
        done += gather
    for number, piece in enumerate(pieces):
        waits: After = tuple(gather.name for gather in brought[number])
        after = (INPUT, *waits) if number == 0 else waits
        released = gathered_use(job, piece.block).kept if brought[number] else {}
        use = piece.memory.then(MemoryUse({part: -size for part, size in released.items()}))
        done.append(Compute(name=names[number], work=piece.work, after=after, memory=use))
        if reduces:
            done += reduced(
                job,
                piece.block.parameters,
                f"gradients {number}",
                after=(names[number],),
                stream=STREAM,
            )
        if number + _AHEAD < len(pieces):
            done += brought[number + _AHEAD]
    return done


def _gather(job: Job, piece: Piece, number: int, names: Sequence[str]) -> list[Communicate]:
    """The gathering of a block's weights, once those two blocks back have been used."""
    calls = weights_gathered(job, piece.block.parameters)
    if not calls:
        return []
    ahead: After = (Recent(_AHEAD - number),) if number < _AHEAD else (names[number - _AHEAD],)
    use = gathered_use(job, piece.block)
    name = f"weights {number}"
    return [Communicate(name=name, calls=calls, after=ahead, stream=STREAM, memory=use)]
