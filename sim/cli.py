"""The command `sim`. Answers go to standard output, progress and complaints to standard error."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from sim.errors import InputError

FILE = click.Path(dir_okay=False, path_type=Path)


class _Group(click.Group):
    """Turns a user's mistake into one line and exit code 2."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except InputError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="clustersim")
def main() -> None:
    """Predict how a training job runs on a cluster before anyone pays for the cluster."""


@main.command()
@click.argument("scenario")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value: plan.tp=4."
)
@click.option("--trace", type=FILE, help="Write a trace for Perfetto (Chrome trace JSON).")
@click.option("--picture", type=FILE, help="Draw the pipeline: .png or .svg.")
@click.option("--report", type=FILE, help="Write the summary: .html, .txt or .md.")
@click.option("--timeline", type=FILE, help="Write every span as a table: .csv or .parquet.")
@click.option("--unfold", is_flag=True, help="Simulate every rank by itself (slow, same answer).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def run(
    scenario: str,
    settings: tuple[str, ...],
    trace: Path | None,
    picture: Path | None,
    report: Path | None,
    timeline: Path | None,
    unfold: bool,
    as_json: bool,
) -> None:
    """Predict one training step of SCENARIO (a name or a TOML file)."""
    from sim import scenario as scenarios
    from sim.simulate import simulate
    from sim.study import outputs

    wanted = {"trace": trace, "picture": picture, "report": report, "timeline": timeline}
    files = {kind: path for kind, path in wanted.items() if path is not None}
    outputs.check(files)
    result = simulate(scenarios.load(scenario, settings), unfold=unfold)
    for kind, path in files.items():
        outputs.write(kind, result, path)
        click.echo(f"wrote {path}", err=True)
    click.echo(json.dumps(result.to_dict()) if as_json else str(result))


@main.command()
@click.argument("tables", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--plot", type=FILE, help="Draw predicted against measured: .png or .svg.")
@click.option("--rows", type=FILE, help="Write every row's prediction as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Print the tables' errors only, not every row.")
def validate(
    tables: tuple[Path, ...], plot: Path | None, rows: Path | None, as_json: bool, quiet: bool
) -> None:
    """Hold predictions against the measured runs of TABLES (CSV)."""
    from sim.study import scoring, verdict
    from sim.study import validate as study

    outcome = study.validate(tables)
    if plot is not None:
        verdict.plot(outcome, plot)
        click.echo(f"wrote {plot}", err=True)
    if rows is not None:
        verdict.write_rows(outcome, rows)
        click.echo(f"wrote {rows}", err=True)
    found = scoring.to_dict(outcome)
    click.echo(json.dumps(found) if as_json else verdict.text(outcome, quiet=quiet))


@main.command()
@click.argument("name")
@click.option("--picture", type=FILE, help="Where to draw it: .png or .svg.")
@click.option("--gpus", type=click.IntRange(min=1), help="Show it with so many GPUs.")
def show(name: str, picture: Path | None, gpus: int | None) -> None:
    """Describe and draw a TOPOLOGY."""
    from sim.hardware import draw, topology

    shown = topology.load(name)
    shown = shown.with_gpus(gpus) if gpus else shown
    click.echo(draw.describe(shown))
    path = picture or Path(f"{shown.name}.png")
    draw.draw(shown, path)
    click.echo(f"wrote {path}", err=True)


@main.command("list")
@click.argument("what", required=False, metavar="[FOLDER]")
def list_(what: str | None) -> None:
    """List scenarios, models, topologies, devices and stacks."""
    from sim import library

    folders = {
        "scenarios": "scenarios",
        "models": "models",
        "topologies": "topologies",
        "devices": "topologies/devices",
        "stacks": "topologies/stacks",
    }
    if what is not None and what not in folders:
        raise InputError("sim list", f"no folder named {what!r}", f"known: {', '.join(folders)}")
    for title, folder in folders.items():
        if what in (None, title):
            click.echo(f"{title}:")
            for name in library.names(folder):
                click.echo(f"  {name}")


if __name__ == "__main__":
    main()
