"""The files that a run can leave, by kind; refused before the simulation if they cannot be."""

from collections.abc import Callable, Mapping
from pathlib import Path

from sim.errors import InputError
from sim.files import whole
from sim.result import Result

_SUFFIXES = {
    "trace": (".json", ".gz"),
    "picture": (".png", ".svg"),
    "report": (".html", ".txt", ".md"),
    "timeline": (".csv", ".parquet"),
}


def check(files: Mapping[str, Path]) -> None:
    """Raise `InputError` for a suffix that means nothing or a folder that is not there."""
    for kind, path in files.items():
        if path.suffix not in _SUFFIXES[kind]:
            known = " or ".join(_SUFFIXES[kind])
            raise InputError(f"--{kind} {path}", "has an unknown ending", f"end it in {known}")
        if not path.parent.is_dir():
            raise InputError(
                f"--{kind} {path}", f"no folder {str(path.parent)!r}", "make it or name another"
            )


def write(kind: str, result: Result, path: Path) -> None:
    """Write one kind of file, whole or not at all."""
    _WRITERS[kind](result, path)


def _trace(result: Result, path: Path) -> None:
    from sim.formats import perfetto

    perfetto.write(result.timeline, path)


def _picture(result: Result, path: Path) -> None:
    from sim.study import gantt

    gantt.draw(result.timeline, path, title=result.scenario)


def _report(result: Result, path: Path) -> None:
    from sim.study import summary

    page = summary.html(result) if path.suffix == ".html" else summary.text(result)
    with whole(path) as part:
        part.write_text(page, encoding="utf-8")


def _timeline(result: Result, path: Path) -> None:
    frame = result.to_frame()
    with whole(path) as part:
        if path.suffix == ".csv":
            frame.to_csv(part, index=False)
        else:
            frame.to_parquet(part, index=False)


_WRITERS: dict[str, Callable[[Result, Path], None]] = {
    "trace": _trace,
    "picture": _picture,
    "report": _report,
    "timeline": _timeline,
}
