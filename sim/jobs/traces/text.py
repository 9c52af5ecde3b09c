"""A replay as text."""

from collections.abc import Iterable
from functools import partial
from html import escape
from itertools import groupby

from sim.config.units import human_seconds
from sim.jobs.traces.account import REASONS
from sim.jobs.traces.replay import Played, Replay

_SHOWN = 5


def text(replay: Replay) -> str:
    """The measured step, the reasons for its seconds, and the effect of a change."""
    again, measured = replay.replayed.step_time, replay.measured
    many = f"steps: {replay.steps}, ranks: {len(replay.files)}"
    whole = (
        [f"replayed     {human_seconds(again)} a step; {many}"]
        if measured is None
        else [
            f"measured     {human_seconds(measured)} a step; {many}",
            f"replayed     {human_seconds(again)} ({again / measured - 1:+.1%})",
        ]
    )
    lines = [
        *whole,
        f"explained    {replay.explained / again:.1%} of it by kernels, launches and waits",
        "",
        *_table(replay.replayed, replay.changed),
        "",
        "longest kernels",
        *(
            f"  {human_seconds(seconds):>9}  {seconds / again:6.1%}  {name.split('(')[0][:70]}"
            for name, seconds in list(replay.kernels.items())[:_SHOWN]
        ),
    ]
    return "\n".join(lines)


def html(replay: Replay) -> str:
    """The same for notebooks."""
    return f"<pre>{escape(text(replay))}</pre>"


def _table(replayed: Played, changed: Played | None) -> list[str]:
    found = [("", f"{'step':>10}" + "".join(f"  {reason:>7}" for reason in REASONS))]
    for name, played in (("as it was", replayed), ("changed", changed)):
        if played is not None:
            alike = groupby(sorted(played.ranks), key=partial(_row, played))
            found += [(f"{name}, {_ranks(ranks)}", row) for row, ranks in alike]
    width = max(20, *(len(name) for name, _ in found))
    rows = [f"{name:{width}}{row}" for name, row in found]
    if changed is not None:
        rows += ["", f"the change: {changed.step_time / replayed.step_time - 1:+.1%} a step"]
    return rows


def _ranks(ranks: Iterable[int]) -> str:
    """Ranks in a row that fared alike."""
    first, *others = ranks
    return f"ranks {first} to {others[-1]}" if others else f"rank {first}"


def _row(played: Played, rank: int) -> str:
    seconds, step = played.ranks[rank], played.step_time or 1.0
    shares = "".join(f"  {seconds[why] / step:>{max(len(why), 7)}.1%}" for why in REASONS)
    return f"{human_seconds(played.step_time):>10}{shares}"
