"""Show a replay of traces: the measured step, the reasons for its seconds, a change's effect."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby

from sim.config.readable import human_seconds
from sim.interface.document.nodes import (
    Document,
    Figure,
    Figures,
    Section,
    Sentence,
    document,
    section,
    table,
)
from sim.jobs.traces.account import REASONS
from sim.jobs.traces.devices import UNMOVED, Move
from sim.jobs.traces.replay import Played, Replay
from sim.results.formatting import Cells

_SHOWN = 5  # the most kernels that are listed
_LONGEST = 70  # characters of a kernel's name that are printed


def view(replay: Replay) -> Document:
    """Show the measured step, the reasons for its waits, and the longest kernels."""
    again, changed = replay.replayed.step_time, replay.changed
    rows = [row for name, played in (("as it was", replay.replayed), ("changed", changed))
            if played is not None for row in _rows(name, played)]  # fmt: skip
    effect = f"the change: {changed.step_time / again - 1:+.1%} a step" if changed else ""
    kernels = [
        (name.split("(")[0][:_LONGEST], human_seconds(seconds), f"{seconds / again:.1%}")
        for name, seconds in list(replay.kernels.items())[:_SHOWN]
    ]
    return document(
        "",
        Figures(tuple(_figures(replay))),
        section("", table(rows, ("", "step", *REASONS)), Sentence(effect) if effect else None),
        *(_moved(replay.moved) if replay.moved else ()),
        section("Longest kernels", table(kernels)),
        line=f"{len(replay.files)} ranks, {human_seconds(again)} a step as replayed",
    )


def _moved(move: Move) -> Iterator[Section]:
    """Show the device's seconds by the rule that converts them to another device's."""
    total = sum(rule.before for rule in move.rules) or 1.0
    rows = [
        (
            rule.rule + ", unchanged" * (rule.rule in UNMOVED),
            f"{rule.kernels:,.0f}",
            human_seconds(rule.before),
            human_seconds(rule.after),
            f"{rule.before / total:.1%}",
        )
        for rule in move.rules
    ]
    after = sum(rule.after for rule in move.rules)
    said = f"rules convert {move.moved:.1%} of its seconds; all take {after / total:.2f} times"
    host = (
        "unchanged: nothing is known of the devices' hosts" if move.host is None
        else f"{move.host:.2f} times as long"
    )  # fmt: skip
    unknown = ", ".join(name.split("(")[0][:_LONGEST] for name in move.unknown[:_SHOWN])
    yield section(
        f"The device, from {move.source} to {move.target}",
        table(rows, ("", "kernels", "before", "after", "share")),
        Sentence(f"{said} as long; the host {host}"),
        Sentence(f"no rule knows {unknown}") if unknown else None,
    )


def _figures(replay: Replay) -> Iterator[Figure]:
    again, measured = replay.replayed.step_time, replay.measured
    many = f"a step; steps: {replay.steps}, ranks: {len(replay.files)}"
    if measured is None:
        yield Figure("replayed", human_seconds(again), many)
    else:
        yield Figure("measured", human_seconds(measured), many)
        off = f"({again / measured - 1:+.1%})"
        yield Figure("replayed", human_seconds(again), off)
    explained = "of it by kernels, launches and waits"
    yield Figure("explained", f"{replay.explained / again:.1%}", explained)


def _rows(name: str, played: Played) -> Iterator[Cells]:
    """Yield a row for each group of ranks with equal printed seconds and shares."""
    for cells, ranks in groupby(sorted(played.ranks), key=partial(_cells, played)):
        yield f"{name}, {_ranks(ranks)}", *cells


def _ranks(ranks: Iterable[int]) -> str:
    first, *others = ranks
    return f"ranks {first} to {others[-1]}" if others else f"rank {first}"


def _cells(played: Played, rank: int) -> Cells:
    seconds, step = played.ranks[rank], played.step_time or 1.0
    shares = (f"{seconds[reason] / step:.1%}" for reason in REASONS)
    return human_seconds(played.step_time), *shares
