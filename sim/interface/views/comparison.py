"""Show a comparison: the table, the causes of differences, the best job and the reason."""

from collections.abc import Iterator

from sim.analysis.comparison.comparison import Comparison
from sim.analysis.comparison.lines import SAMPLES, LineChange, LineDifferences
from sim.config.readable import human_bytes, human_seconds
from sim.interface.document.nodes import (
    Document,
    Listing,
    Picture,
    Section,
    Sentence,
    document,
    section,
    table,
    warnings,
)
from sim.results.differences import told
from sim.results.formatting import Cells, percent, several

_MOST = 12  # lines of the script that are shown
_LONGEST = 60  # characters of a line of the script
_LEAST = 1e-4  # share of the step below which a cause is not shown


def view(compared: Comparison) -> Document:
    """Show the jobs behind short names, the table, the differences, and notes on the jobs."""
    asked = "\n".join(f"{name}: {asked}" for name, asked in compared.asked.items())
    picture = Picture(says="The jobs to one scale", draw=compared.plot)
    return document(
        "",
        Listing(asked) if asked else None,
        side_by_side(compared),
        *differences(compared),
        Sentence(compared.reason),
        picture,
        *(Sentence(note, "note") for note in compared.notes),
        line=compared.title,
    )


def side_by_side(compared: Comparison) -> Section:
    """Show a row for each job."""
    head, *rows = compared.table
    legend = Sentence(compared.legend, "aside") if compared.legend else None
    return section(compared.title, table(rows, head), legend, name="table")


def differences(compared: Comparison) -> Iterator[Section]:
    """Show the causes of differences, in a table for each account. Equal tables are shown once:
    without pipelines, the account of the critical path equals the account of a rank's step."""
    head = ("", *compared.names)
    told: list[list[Cells]] = []
    for part in compared.parts:
        rows = list(part.rows)
        names = {name for seconds in part.seconds for name in seconds}
        if part.moves and rows not in told and len(names) > 1:
            told.append(rows)
            yield section(f"{part.title}, against {compared.names[0]}", table(rows, head))


def lines(answer: LineDifferences) -> Document:
    """Show the two steps, their differences by cause, and the script's lines by their
    differences."""
    before, after = answer.step_times
    longer = 100.0 * (after / before - 1.0)
    steps = f"{human_seconds(before)} -> {human_seconds(after)} a step ({longer:+.1f} %)"
    memory = f"{human_bytes(answer.memory[0])} -> {human_bytes(answer.memory[1])}"
    return document(
        f"{answer.title}: {steps}, {memory}",
        Sentence(f"Simulated on {_machines(answer)}."),
        *warnings(_unlike(answer)),
        *warnings(answer.notes),
        _causes(answer),
        _lines(answer),
        line=", ".join((steps, *told(answer.causes, _LEAST * before))),
    )


def _machines(answer: LineDifferences) -> str:
    """Name the number of GPUs and the device of both steps."""
    inputs = answer.inputs.values()
    return " and ".join(
        dict.fromkeys(f"{several(side.gpus, 'GPU')} ({side.device})" for side in inputs)
    )


def _unlike(answer: LineDifferences) -> Iterator[str]:
    """Yield the inputs in which the steps differ, and whether their seconds can be compared."""
    for name, (before, after) in answer.unlike.items():
        so = ""
        if name in answer.incomparable:
            so = ", so seconds of the two steps cannot be compared"
        elif name == SAMPLES:
            more = "more" if answer.slower > 0 else "less"
            so = f"; as many samples take {percent(abs(answer.slower))} {more} time"
        yield f"{name}: {before} before, {after} after{so}"


def _causes(answer: LineDifferences) -> Section | None:
    least = _LEAST * answer.step_times[0]
    rows = [(cause, _signed(s)) for cause, s in answer.causes.items() if abs(s) > least]
    return section("Differences of the step by cause", table(rows)) if rows else None


def _lines(answer: LineDifferences) -> Section:
    if not answer.lines:
        return section("", Sentence("No line costs more or less than it did."))
    head = ("line", "kernels", "was", "sent", "held", "text")
    note = (
        "Seconds are device seconds of kernels. Bytes sent are those of a step, bytes held those "
        "at the fullest moment."
    )
    return section(
        "Lines of the script that differ",
        table([_row(line) for line in answer.lines[:_MOST]], head),
        Sentence(note, "aside"),
    )


def _row(line: LineChange) -> Cells:
    place = line.after or f"{line.before} (gone)"
    if line.before != line.after and line.before and line.after:
        place = f"{line.before} -> {line.after.rpartition(':')[2]}"
    elif not line.before:
        place = f"{line.after} (new)"
    text = line.text if len(line.text) <= _LONGEST else f"{line.text[: _LONGEST - 3]}..."
    return (
        place,
        _signed(line.seconds) if line.seconds else "-",
        human_seconds(line.was.seconds) if line.was.seconds else "-",
        _more(line.now.sent - line.was.sent),
        _more(line.now.holds - line.was.holds),
        text,
    )


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{human_seconds(abs(seconds))}"


def _more(size: float) -> str:
    return f"{'-' if size < 0 else '+'}{human_bytes(abs(size))}" if size else "-"
