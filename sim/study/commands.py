"""The commands that ask many questions: `sweep`, `plan`, `goodput`, `cost`."""

import json
from pathlib import Path

import click

from sim.errors import InputError

FILE = click.Path(path_type=Path)
SETTINGS = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value: plan.tp=4."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command()
@click.argument("scenario")
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="KEY=VALUES",
    help="plan.tp=1,2,4 or network.bandwidth=100..800Gb/s:5; may be repeated.",
)
@click.option("--zip", "zipped", is_flag=True, help="Take values side by side, not all pairs.")
@click.option("--csv", "rows", type=FILE, help="Take points from a CSV, one column a key.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; one a core otherwise.")
@click.option("--cluster", metavar="ADDRESS", help="Work on this Dask scheduler instead.")
@click.option("--store", type=FILE, help="Keep results in this SQLite file; continue from it.")
@click.option("--out", type=FILE, help="Write the table: .csv or .parquet.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def sweep(
    scenario: str,
    varied: tuple[str, ...],
    zipped: bool,
    rows: Path | None,
    jobs: int | None,
    cluster: str | None,
    store: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Simulate SCENARIO at every point of a grid or table; one row a point."""
    from sim.study import sweep as study
    from sim.study import vary

    if not varied and rows is None:
        raise InputError("sim sweep", "nothing is varied", "add --vary KEY=VALUES or --csv FILE")
    _check_out(out)
    given = vary.rows(rows) if rows is not None else [{}]
    points = vary.points([vary.axis(text) for text in varied], given, zipped=zipped)
    frame = study.sweep(scenario, points, store=store, jobs=jobs, cluster=cluster)
    if out is not None:
        study.write(frame, out)
        click.echo(f"wrote {out}", err=True)
    click.echo(json.dumps(study.to_dict(frame)) if as_json else study.text(frame))


def _check_out(out: Path | None) -> None:
    from sim.study import outputs

    if out is not None:
        outputs.check({"out": out})


@click.command()
@click.argument("model")
@click.argument("topology")
@click.option("--gpus", type=click.IntRange(min=1), help="How many; all of the topology otherwise.")
@click.option("--global-batch", type=click.IntRange(min=1), required=True, help="Sequences a step.")
@click.option("--stack", default="megatron-core", show_default=True, help="What runs the job.")
@click.option("--precision", default="bf16", show_default=True, help="Of the matrix products.")
@click.option("--seq", type=click.IntRange(min=1), help="Tokens a sequence; the model's otherwise.")
@click.option("--max-tp", type=click.IntRange(min=1), help="Tensor parallelism at most; a node.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; one a core otherwise.")
@click.option("--plot", type=FILE, help="Draw time against memory: .png or .svg.")
@JSON
def plan(
    model: str,
    topology: str,
    gpus: int | None,
    global_batch: int,
    stack: str,
    precision: str,
    seq: int | None,
    max_tp: int | None,
    jobs: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Search the fastest layout of MODEL on TOPOLOGY that fits in memory."""
    from sim.study import choice, outputs, search
    from sim.study.layouts import space

    if plot is not None:
        outputs.check({"plot": plot})
    asked = space(model, topology, gpus=gpus, global_batch=global_batch, stack=stack,
                  precision=precision, seq=seq, max_tp=max_tp)  # fmt: skip
    found = search.search(asked, jobs=jobs)
    if plot is not None:
        choice.plot(found, plot)
        click.echo(f"wrote {plot}", err=True)
    click.echo(json.dumps(search.to_dict(found)) if as_json else choice.text(found))
