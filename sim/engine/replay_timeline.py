"""The timeline of a replayed score: the same spans that the clock would have logged."""

from collections.abc import Iterator

from sim.engine.clock import Writer
from sim.engine.folded import Part, Score, Step
from sim.engine.replay import Replay
from sim.engine.replay_contention import prepared
from sim.engine.timeline import Span, Timeline

Log = list[tuple[Step, float, float, str]]


def replay(score: Score) -> tuple[Timeline, bool]:
    """What `sim.engine.clock.play` gives, without a clock; and whether transfers contend.

    Where they do, one run of the clock has said by how much each of them is slowed.
    """
    compiled, contended = prepared(score)
    return timeline(compiled), contended


def timeline(replay: Replay) -> Timeline:
    """All spans of the replay's own durations."""
    score = replay.shape.score
    start, _, end = replay.intervals()
    writer = Writer(score.transfers, start.tolist(), end.tolist())
    return Timeline(
        roles=tuple(part.role for part in score.parts),
        spans=list(_spans(replay, writer)),
        end=replay.time(),
    )


def _spans(replay: Replay, writer: Writer) -> Iterator[Span]:
    when = replay.spans()
    for number, part in enumerate(replay.shape.score.parts):
        yield from writer.spans(part.role.index, _log(number, part, when))


def _log(number: int, part: Part, when: dict[tuple[int, int], tuple[float, float]]) -> Log:
    """The steps of a part in the order in which they end."""
    log = [
        (step, *when[number, step.index], stream)
        for stream, steps in part.streams.items()
        for step in steps
    ]
    return sorted(log, key=lambda entry: (entry[2], entry[1]))
