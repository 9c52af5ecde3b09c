"""The commands that ask many questions: `sweep`, `plan`, `goodput`, `cost`."""

import json
from pathlib import Path

import click

from sim.config.errors import InputError

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
@click.option("--samples", type=click.IntRange(min=1), help="Draw so many steps with stragglers.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; one a core otherwise.")
@click.option("--cluster", metavar="ADDRESS", help="Work on this Dask scheduler instead.")
@click.option(
    "--store",
    type=FILE,
    default="sweeps.db",
    show_default=True,
    help="Keep results in this SQLite file; continue from it.",
)
@click.option("--no-store", "forget", is_flag=True, help="Keep nothing.")
@click.option("--out", type=FILE, help="Write the table: .csv or .parquet.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def sweep(
    scenario: str,
    varied: tuple[str, ...],
    zipped: bool,
    rows: Path | None,
    samples: int | None,
    jobs: int | None,
    cluster: str | None,
    store: Path,
    forget: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Simulate SCENARIO at every point of a grid or table; one row a point.

    Rows are stored as they come: a sweep that was interrupted continues, one asked again answers
    from the store, and whatever has changed meanwhile is computed anew.
    """
    from sim.sweep import points as vary
    from sim.sweep import sweep as study

    if not varied and rows is None:
        raise InputError("sim sweep", "nothing is varied", "add --vary KEY=VALUES or --csv FILE")
    _check_out(out)
    given = vary.rows(rows) if rows is not None else [{}]
    points = vary.points([vary.axis(text) for text in varied], given, zipped=zipped)
    kept = None if forget else store
    frame = study.sweep(
        scenario, points, samples=samples or 0, store=kept, jobs=jobs, cluster=cluster
    )
    if out is not None:
        study.write(frame, out)
        click.echo(f"wrote {out}", err=True)
    click.echo(json.dumps(study.to_dict(frame)) if as_json else study.text(frame))


def _check_out(out: Path | None) -> None:
    from sim.cli import outputs

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
    from sim.cli import outputs
    from sim.search import report as choice
    from sim.search import search
    from sim.search.space import space

    if plot is not None:
        outputs.check({"plot": plot})
    asked = space(model, topology, gpus=gpus, global_batch=global_batch, stack=stack,
                  precision=precision, seq=seq, max_tp=max_tp)  # fmt: skip
    found = search.search(asked, jobs=jobs)
    if plot is not None:
        choice.plot(found, plot)
        click.echo(f"wrote {plot}", err=True)
    click.echo(json.dumps(search.to_dict(found)) if as_json else choice.text(found))


@click.command()
@click.argument("scenario")
@click.option(
    "--failures",
    default="llama3",
    show_default=True,
    help="A table of topologies/failures, a .toml, or a .csv of interruptions.",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="How long to simulate.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@SETTINGS
@JSON
def goodput(
    scenario: str, failures: str, days: float, seed: int, settings: tuple[str, ...], as_json: bool
) -> None:
    """Simulate days of SCENARIO with failures: goodput, checkpoints, cost.

    `--set recovery.restart="10 min"` (detection, restart, interval, stop, spares, elastic, ...)
    changes how failures are dealt with, any other key the scenario.
    """
    from sim.reliability import failures as tables
    from sim.reliability import goodput as study
    from sim.scenario import scenario as scenarios
    from sim.scenario.setup import from_scenario
    from sim.simulate import run

    ours = [text for text in settings if text.startswith(("recovery.", "gpus_per_node="))]
    seen = tables.load(failures, [scenarios.setting(text) for text in ours])
    asked = scenarios.load(scenario, [text for text in settings if text not in ours])
    setup = from_scenario(asked)
    found = study.goodput(setup, run(setup), seen, days=days, seed=seed)
    click.echo(json.dumps(found.to_dict()) if as_json else study.text(found))


@click.command()
@click.argument("scenario")
@click.option("--tokens", type=float, help="How many; the scenario's budget otherwise.")
@click.option(
    "--price", metavar="USD/h", help='Rent of a GPU instead of the topology\'s: "2 USD/h".'
)
@click.option(
    "--goodput",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the time that counts.",
)
@SETTINGS
@JSON
def cost(
    scenario: str,
    tokens: float | None,
    price: str | None,
    goodput: float,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Days, dollars and energy of training SCENARIO on so many tokens."""
    from sim.reliability import cost as study
    from sim.scenario import scenario as scenarios

    settings = (*settings, f"topology.price.hour={price}") if price else settings
    found = study.of_scenario(scenarios.load(scenario, settings), tokens=tokens, goodput=goodput)
    click.echo(json.dumps(found.to_dict()) if as_json else study.text(found))
