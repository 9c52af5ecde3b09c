"""The files that a command can leave, by kind; refused before the work starts if they cannot be."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.engine.timeline import Timeline
from sim.results.result import Result
from sim.sharing.outcome import Outcome

_SUFFIXES = {
    "trace": (".json", ".gz"),
    "picture": (".png", ".svg"),
    "plot": (".png", ".svg"),
    "report": (".html", ".txt", ".md"),
    "timeline": (".csv",),
    "rows": (".csv",),
    "spread": (".toml",),
    "out": (".csv", ".parquet"),
}


def check(files: Mapping[str, Path]) -> None:
    """Raise `InputError` for an ending that means nothing or a place that cannot hold a file."""
    for kind, path in files.items():
        where = f"--{kind} {path}"
        if path.suffix not in _SUFFIXES[kind]:
            known = " or ".join(_SUFFIXES[kind])
            raise InputError(where, "has an unknown ending", f"end it in {known}")
        if path.is_dir():
            raise InputError(where, "is a folder", "name a file in it")
        if not path.parent.is_dir():
            raise InputError(where, f"no folder {str(path.parent)!r}", "make it or name another")


def write(kind: str, result: Result | Outcome, path: Path) -> None:
    """Write one kind of file of a run, whole or not at all."""
    _WRITERS[kind](result, path)


def _trace(result: Result | Outcome, path: Path) -> None:
    from sim.formats import perfetto

    perfetto.write(result.timeline, path)


def _picture(result: Result | Outcome, path: Path) -> None:
    from sim.plots import pipeline as gantt

    gantt.draw(_shown(result), path, title=result.scenario)


def _report(result: Result | Outcome, path: Path) -> None:
    page = _page(result) if path.suffix == ".html" else f"{result}\n"
    with atomic_write(path) as part:
        part.write_text(page, encoding="utf-8")


def _page(result: Result | Outcome) -> str:
    from sim.plots import pipeline as gantt
    from sim.results import sharing
    from sim.results import text as summary

    picture = gantt.render(_shown(result), title=result.scenario)
    if isinstance(result, Outcome):
        curve = sharing.loss_figure([result], title=result.label) if result.curve else None
        pictures = [picture] if curve is None else [picture, sharing.png(curve, dpi=80)]
        body = sharing.html(result, pictures=pictures)
    else:
        body = summary.html(result, picture=picture)
    head = f'<meta charset="utf-8"><title>{escape(result.scenario)}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _shown(result: Result | Outcome) -> Timeline:
    """What a picture has room for."""
    return result.excerpt if isinstance(result, Outcome) else result.timeline


def _timeline(result: Result | Outcome, path: Path) -> None:
    frame = result.to_frame()
    with atomic_write(path) as part:
        frame.to_csv(part, index=False)


_WRITERS: dict[str, Callable[[Result | Outcome, Path], None]] = {
    "trace": _trace,
    "picture": _picture,
    "report": _report,
    "timeline": _timeline,
}
