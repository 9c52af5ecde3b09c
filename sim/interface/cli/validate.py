"""`sim validate` compares predictions with measured runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import Form, answers, output, wrote

if TYPE_CHECKING:
    from sim.analysis.validation.answer import Validation
    from sim.analysis.validation.figures import FigureValidation
    from sim.analysis.validation.parts import PartValidation
    from sim.analysis.validation.validate import ValidatedTable


@click.command(
    epilog=options.examples(
        "sim validate korthikanti --picture errors.png",
        "sim validate mine.csv --coverage --rows rows.csv",
        "sim validate --kernels gemm.csv --as h100-80gb-sxm --only framework=trtllm",
        "sim validate --collectives nccl.csv --on dgx-h100-ndr",
    )
)
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@answers("Draw predicted against measured", "--plot")
@output("--rows", (".csv",), "Write every row's prediction")
@output(
    "--spread", (".toml",), "Write the errors; in topologies/validated/ they correct predictions"
)
@output("--page", (), "Write every row, with pictures, as pages of Markdown")
@click.option("--coverage", is_flag=True, help="Count held-out rows within intervals.")
@click.option("--ablation", is_flag=True, help="Switch each mechanism off in turn.")
@click.option("--at-most", type=options.COUNT, help="Rows of a table, evenly spread.")
@click.option(
    "--stack-of", multiple=True, metavar="SOFTWARE=STACK", help="Run SOFTWARE's rows with STACK."
)
@click.option("--kernels", is_flag=True, help="The tables have kernels on the device --as.")
@click.option("--as", "device", default="", metavar="DEVICE", help="The device of the kernels.")
@click.option("--held", is_flag=True, help="Kernels ran for minutes, at the device's held clock.")
@click.option("--collectives", is_flag=True, help="The tables have collectives on --on.")
@click.option("--on", "topology", default="", metavar="TOPOLOGY", help="Cluster of --collectives.")
@click.option(
    "--only", multiple=True, metavar="COLUMN[!]=VALUE", help="Only these rows of kernels' tables."
)
@options.SETTINGS
@options.JOBS
@options.LIMIT
@click.option("--quiet", is_flag=True, help="Print the tables' errors only, not every row.")
def validate(
    tables: tuple[str, ...],
    rows: Path | None,
    spread: Path | None,
    page: Path | None,
    coverage: bool,
    ablation: bool,
    at_most: int | None,
    stack_of: tuple[str, ...],
    kernels: bool,
    device: str,
    held: bool,
    collectives: bool,
    topology: str,
    only: tuple[str, ...],
    settings: tuple[str, ...],
    jobs: options.Jobs,
    form: Form,
    quiet: bool,
) -> None:
    """Compare predictions with measured runs.

    A TABLE is a name of measurements/ or a CSV; without TABLE all of measurements/ are taken. With
    --kernels or --collectives a TABLE has measured kernels or collectives, not whole steps.
    """
    from sim.analysis.validation import spread as spread_file
    from sim.analysis.validation.answer import validate as validated

    of_steps = {"spread": spread, "page": page, "coverage": coverage, "stack-of": stack_of}
    of_parts = {"as": device, "held": held, "on": topology, "only": only}
    if kernels or collectives:
        _refuse_half_asked(tables, kernels, device, collectives, topology)
        _refuse_unread("parts of a step", **of_steps, ablation=ablation, **{"at-most": at_most})
        parts = _parts(tables, device, held, topology, options.pairs("--only", only), settings)
        _write_rows(parts, rows)
        form.show(parts)
        return
    _refuse_unread("steps; it is of --kernels or --collectives", **of_parts)
    if figures := _figures(tables, settings, at_most):
        _refuse_unread("figures of a kind of jobs", **of_steps, ablation=ablation)
        _write_rows(figures, rows)
        form.show(figures)
        return
    if ablation:
        _refuse_unread("--ablation", **of_steps, rows=rows, set=settings)
        _ablate(tables, at_most, jobs, form)
        return
    answer = validated(
        *tables,
        settings=settings,
        stack_of=dict(_pair(text) for text in stack_of),
        at_most=at_most,
        jobs=jobs,
        coverage=coverage,
        quiet=quiet,
    )
    if page is not None:
        _write_pages(answer.tables, page)
        wrote(page)
    _write_rows(answer, rows)
    if spread is not None:
        spread_file.write(answer.tables, spread)
        wrote(spread)
    form.show(answer)


def _refuse_unread(question: str, **given: object) -> None:
    """Refuse the options that do not belong to the question."""
    for name, value in given.items():
        if value:
            raise InputError(f"--{name}", f"says nothing of {question}", "leave it out")


def _write_rows(
    answer: "Validation | PartValidation | FigureValidation", path: Path | None
) -> None:
    from sim.config.files import atomic_write

    if path is not None:
        with atomic_write(path) as part:
            answer.to_frame().to_csv(part, index=False)
        wrote(path)


def _parts(
    tables: tuple[str, ...],
    device: str,
    held: bool,
    topology: str,
    only: dict[str, str],
    settings: tuple[str, ...],
) -> "PartValidation":
    from sim.analysis.validation.parts import validate_collectives, validate_kernels

    if topology:
        return validate_collectives(*tables, topology=topology, only=only, settings=settings)
    return validate_kernels(*tables, device=device, only=only, held=held)


def _figures(
    tables: tuple[str, ...], settings: tuple[str, ...], at_most: int | None
) -> "FigureValidation | None":
    """Validate tables that a kind of jobs reads itself; return None if none is given. Raises
    `InputError` if other tables are among them."""
    from sim.analysis.validation.figures import owner, validate_figures

    paths = [
        path for path in map(Path, tables) if path.suffix == ".csv" and owner(path) is not None
    ]
    if not paths:
        return None
    if len(paths) < len(tables):
        fault = f"{paths[0]} has figures of its own, other tables have steps alone"
        raise InputError("sim validate", fault, "validate them one after the other")
    return validate_figures(*paths, settings=settings, at_most=at_most)


def _refuse_half_asked(
    tables: tuple[str, ...], kernels: bool, device: str, collectives: bool, topology: str
) -> None:
    option = "--kernels" if kernels else "--collectives"
    if kernels and collectives:
        raise InputError(option, "and --collectives are two questions", "ask one at a time")
    if not tables:
        raise InputError(option, "needs a table", f"name it: sim validate {option} TABLE.csv")
    if kernels and (topology or not device):
        raise InputError(option, "needs the device they ran on", "name it: --as h100-80gb-sxm")
    if collectives and (device or not topology):
        raise InputError(option, "needs the cluster they ran on", "name it: --on dgx-h100-ndr")


def _pair(text: str) -> tuple[str, str]:
    software, found, stack = text.rpartition("=")
    if not found:
        raise InputError("--stack-of", f"{text!r} names no stack", "write SOFTWARE=STACK")
    return software, stack


def _write_pages(runs: "Sequence[ValidatedTable]", folder: Path) -> None:
    """Write the pages of `views.validation_pages`, and a picture for each table with timed rows."""
    from sim.config.files import atomic_write
    from sim.interface.plots import picture, validation
    from sim.interface.views.validation_pages import pages

    folder.mkdir(exist_ok=True)
    pictures = {}
    for table in runs:
        if (drawn := validation.residuals(table)) is not None:
            pictures[table.name] = f"{table.name}.png"
            with atomic_write(folder / pictures[table.name]) as part:
                part.write_bytes(picture.rendered(drawn, dpi=80))
    for name, text in pages(runs, pictures).items():
        with atomic_write(folder / name) as part:
            part.write_text(text, encoding="utf-8")


def _ablate(tables: tuple[str, ...], at_most: int | None, jobs: options.Jobs, form: Form) -> None:
    from sim.analysis.validation import ablation, shipped
    from sim.interface.document.terminal import text
    from sim.interface.views.validation import ablations

    paths = [shipped.table(name) for name in tables] or shipped.tables()
    found = ablation.ablations(paths, at_most=at_most, jobs=jobs)
    click.echo(json.dumps(ablation.to_dict(found)) if form.as_json else text(ablations(found)))
