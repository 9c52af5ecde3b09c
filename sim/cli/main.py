"""The command `sim`. Answers go to standard output, progress and complaints to standard error."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import click

from sim.cli import questions as commands
from sim.cli.calibrate import calibrate
from sim.cli.measure import measure
from sim.config.errors import InputError

FILE = click.Path(path_type=Path)


class _Mistake(click.ClickException):
    """What the user has to mend: one line on standard error, exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        line = " ".join(self.format_message().split())
        click.echo(f"error: {line}", file=file, err=True)


@contextmanager
def _mistakes() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise _Mistake(str(error)) from None
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise _Mistake(_usage(error)) from None
    except BrokenPipeError:
        raise  # click ends quietly where nobody reads on
    except OSError as error:
        what = f"cannot be read or written ({error.strerror})"
        where = error.filename or "standard output"
        raise _Mistake(f"{where}: {what}; check the disk and the path") from None


def _usage(error: click.UsageError) -> str:
    """Where, what and what to do, of a command line that click cannot read."""
    command = error.ctx.command_path if error.ctx else "sim"
    message = error.format_message()
    what = re.split(r"[.\s]*\(?(?:Did you mean|Possible options)", message)[0].rstrip(".")
    near = re.search(r"'[^']+'|--[\w-]+", message[len(what) :])
    remedy = f"did you mean {near[0]}?" if near else f"see `{command} --help`"
    return f"{command}: {what[0].lower()}{what[1:]}; {remedy}"


class _Group(click.Group):
    """A group whose commands report mistakes in one line."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _mistakes():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _mistakes():
            return super().invoke(ctx)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="clustersim")
def main() -> None:
    """Predict how a training job runs on a cluster before anyone pays for the cluster."""


@main.command()
@click.argument("scenario")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value: plan.tp=4."
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="FILE",
    help="Use what `sim calibrate` measured.",
)
@click.option("--trace", type=FILE, help="Write a trace for Perfetto (Chrome trace JSON).")
@click.option("--picture", type=FILE, help="Draw the pipeline: .png or .svg.")
@click.option("--report", type=FILE, help="Write the summary: .html, .txt or .md.")
@click.option("--timeline", type=FILE, help="Write every span as a table: .csv.")
@click.option("--unfold", is_flag=True, help="Simulate every rank by itself (slow, same answer).")
@click.option(
    "--engine",
    type=click.Choice(["auto", "clock", "replay"]),
    default="auto",
    help="Play on the clock, or replay without one.",
)
@click.option("--samples", type=int, help="Draw so many steps with stragglers, see [jitter].")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def run(
    scenario: str,
    settings: tuple[str, ...],
    profiles: tuple[str, ...],
    trace: Path | None,
    picture: Path | None,
    report: Path | None,
    timeline: Path | None,
    unfold: bool,
    engine: Literal["auto", "clock", "replay"],
    samples: int | None,
    as_json: bool,
) -> None:
    """Predict one training step of SCENARIO (a name or a TOML file)."""
    from sim.cli import outputs
    from sim.scenario import profiles as measured
    from sim.scenario import scenario as scenarios
    from sim.simulate import simulate

    changes = dict(map(measured.setting_of, profiles)) | dict(map(scenarios.setting, settings))
    files = _files(trace=trace, picture=picture, report=report, timeline=timeline)
    if samples is not None:
        _refuse_with_samples(unfold=unfold, clock=engine == "clock", **dict.fromkeys(files, True))
        return _sample(scenarios.load(scenario, changes), samples, picture, as_json)
    result = simulate(scenarios.load(scenario, changes), unfold=unfold, engine=engine)
    for kind, path in files.items():
        outputs.write(kind, result, path)
        _wrote(path)
    click.echo(json.dumps(result.to_dict()) if as_json else str(result))


def _refuse_with_samples(**given: bool) -> None:
    for name in sorted(name for name, used in given.items() if used and name != "picture"):
        option = "--engine clock" if name == "clock" else f"--{name}"
        raise InputError(option, "plays one step, not --samples", "leave out one of the two")


def _sample(scenario: Any, count: int, picture: Path | None, as_json: bool) -> None:
    """Many steps with stragglers, their distribution instead of one result."""
    from sim.samples import report as samples_view
    from sim.samples import samples

    found = samples.samples(scenario, count)
    if picture is not None:
        samples_view.draw(found, picture)
        _wrote(picture)
    click.echo(json.dumps(found.to_dict()) if as_json else str(found))


@main.command()
@click.argument("tables", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--plot", type=FILE, help="Draw predicted against measured: .png or .svg.")
@click.option("--rows", type=FILE, help="Write every row's prediction as CSV.")
@click.option("--spread", type=FILE, help="Write how far off the tables are, for intervals: .toml.")
@click.option("--coverage", is_flag=True, help="Hold intervals against rows kept out of them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Print the tables' errors only, not every row.")
def validate(
    tables: tuple[Path, ...],
    plot: Path | None,
    rows: Path | None,
    spread: Path | None,
    coverage: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Hold predictions against the measured runs of TABLES (CSV)."""
    from sim.validation import coverage as kept_out
    from sim.validation import errors as scoring
    from sim.validation import report as verdict
    from sim.validation import spread as spreads
    from sim.validation import validate as study

    _files(plot=plot, rows=rows, spread=spread)
    outcome = study.validate(tables)
    if plot is not None:
        verdict.plot(outcome, plot)
        _wrote(plot)
    if rows is not None:
        verdict.write_rows(outcome, rows)
        _wrote(rows)
    if spread is not None:
        spreads.write(outcome, spread)
        _wrote(spread)
    found = scoring.to_dict(outcome)
    shown = [verdict.text(outcome, quiet=quiet)]
    if coverage:
        held = kept_out.coverage(outcome)
        found["coverage"] = kept_out.summary(held)
        shown.append(kept_out.text(held))
    click.echo(json.dumps(found) if as_json else "\n\n".join(shown))


@main.command()
@click.argument("name", metavar="TOPOLOGY|PROFILE")
@click.option("--picture", type=FILE, help="Where to draw it: .png or .svg.")
@click.option("--gpus", type=click.IntRange(min=1), help="Show it with so many GPUs.")
def show(name: str, picture: Path | None, gpus: int | None) -> None:
    """Describe and draw a TOPOLOGY, or the PROFILE of a device or of a fabric."""
    from sim.calibration.fitting import report as show_fabric
    from sim.hardware.cluster import topology
    from sim.plots import topology as draw
    from sim.results import profile as describe_profile
    from sim.results import topology as describe

    _files(picture=picture)
    if show_fabric.is_one(name):
        click.echo(show_fabric.describe(name))
        path = picture or Path(f"{Path(name).stem}.png")
        show_fabric.draw(name, path)
        return _wrote(path)
    if describe_profile.is_one(name):
        return _show_profile(name, picture)
    shown = topology.load(name)
    shown = shown.with_gpus(gpus) if gpus else shown
    click.echo(describe.describe(shown))
    path = picture or Path(f"{shown.name}.png")
    draw.draw(shown, path)
    _wrote(path)


def _show_profile(name: str, picture: Path | None) -> None:
    from sim.hardware.kernels import profile
    from sim.plots import profile as draw_profile
    from sim.results import profile as describe_profile

    shown, title = profile.load(name), Path(name).stem
    click.echo(describe_profile.describe(shown, title))
    path = picture or Path(f"{title}.png")
    draw_profile.draw(shown, title, path)
    _wrote(path)


for command in (commands.sweep, commands.plan, commands.goodput, commands.cost, calibrate, measure):
    main.add_command(command)


@main.command("list")
@click.argument("what", required=False, metavar="[FOLDER]")
def list_(what: str | None) -> None:
    """List scenarios, models, topologies, devices and stacks."""
    from sim.config import catalog

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
            for name in catalog.names(folder):
                click.echo(f"  {name}")


def _files(**wanted: Path | None) -> dict[str, Path]:
    """The files asked for, by kind; refused before any work if they cannot be written."""
    from sim.cli import outputs

    files = {kind: path for kind, path in wanted.items() if path is not None}
    outputs.check(files)
    return files


def _wrote(path: Path) -> None:
    click.echo(f"wrote {path}", err=True)


if __name__ == "__main__":
    main()
