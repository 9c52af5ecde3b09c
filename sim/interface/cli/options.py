"""Options that several commands have."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.config import limit, spoken
from sim.config.errors import InputError
from sim.config.units import quantity_of

if TYPE_CHECKING:
    from sim.scenario.scenario import BaseScenario


class Count(click.ParamType[int]):
    """A whole number; a number out of bounds is refused with a message that has the bounds."""

    name = "integer"

    def __init__(self, least: int = 1, most: int = 10**9) -> None:
        self.least, self.most = least, most

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(click.INT.convert(value, param, ctx))
        if not self.least <= number <= self.most:
            fault = f"{number} is not in the range {self.least}<=x<={self.most}."
            self.fail(fault, param, ctx)
        return number


def examples(*lines: str) -> str:
    """Return the examples as the text below the help of a command."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


# A larger number of anything (GPUs, steps, sequences) would fit no list.
COUNT = Count()
INPUT_FILE = click.Path(path_type=Path)
SETTINGS = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value: plan.tp=4."
)
PROFILES = click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME|FILE",
    help="Use a profile of `sim calibrate`; repeatable.",
)


def _by_method(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (f"sharing.method={Path(value).resolve() if value.endswith('.py') else value}",)


METHOD = click.option(
    "--method",
    metavar="NAME|FILE.py",
    callback=_by_method,
    help="Method by which workers share updates; a Python file adds its own.",
)
TASK = click.option(
    "--task",
    type=INPUT_FILE,
    metavar="FILE.py",
    help="Python file of the task to learn.",
)


Jobs = int | str | None  # processes, or the address of a Dask scheduler


class _Jobs(Count):
    """Processes, or the address of a Dask scheduler."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N|ADDRESS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in str(value) else super().convert(value, param, ctx)


JOBS = click.option(
    "--jobs",
    type=_Jobs(most=1024),
    help="Processes, one per core by default; or a Dask scheduler: tcp://host:8786.",
)


_NONE = re.compile(r"\s*0*(0|\.0+|0\.)0*\s*%?\s*")


class _Number(click.ParamType[float]):
    """A positive number that `read` reads from a text; messages give `like` as an example."""

    name = "number"

    def __init__(self, read: Callable[[str], float], like: str) -> None:
        self.read, self.like = read, like

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return self.read(value)
        except ValueError as error:
            where = param.opts[0] if param else "command line"
            raise InputError(where, str(error), self.like) from None


def _allow(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        before = limit.allowed()
        ctx.call_on_close(lambda: limit.allow(before))
        limit.allow(quantity_of("--limit", value, "s", "2 h"))


def factor_of(where: str, text: str) -> float:
    """Return the positive factor in a text. Raises `InputError`."""
    try:
        return spoken.number_in(text)
    except ValueError as error:
        raise InputError(where, str(error), "write a positive factor") from None


NUMBER = _Number(
    spoken.number_in, "write a positive number such as 400000, 1.5e9 or 2T (k, M, B, T)"
)
_AS_SHARE = "write its %, or a number below 1: 3% or 0.03"
SHARE = _Number(spoken.share_in, _AS_SHARE)
SHARE_OR_NONE = _Number(
    lambda text: 0.0 if _NONE.fullmatch(text) else spoken.share_in(text), _AS_SHARE
)
LIMIT = click.option(
    "--limit", metavar="TIME", callback=_allow, expose_value=False,
    help='Longest time to allow, such as "2 h"; ten minutes by default.',
)  # fmt: skip


def _price(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        quantity_of("--price", value, "USD/h")
    return value


PRICE = click.option(
    "--price",
    metavar="USD/h",
    callback=_price,
    help='Rent of a GPU, such as "2 USD/h", in place of the topology\'s.',
)
_JOB = {
    "model": click.option("--model", help="Use this model (name, TOML, Hugging Face config.json)."),
    "topology": click.option("--topology", help="Use this cluster."),
    "stack": click.option("--stack", help="Use this software."),
    "gpus": click.option("--gpus", type=COUNT, help="GPUs of the topology in use."),
}


def of_job(command: Callable[..., None]) -> Callable[..., None]:
    """Add --model, --topology, --stack, --gpus and --set. The first four replace a SCENARIO, or
    change values of it, and the command gets them as `named`. `METHOD` joins the settings."""

    @wraps(command)
    def asked(settings: tuple[str, ...], method: tuple[str, ...] = (), **given: Any) -> None:
        named = {key: given.pop(key) for key in _JOB}
        command(named=named, settings=(*method, *settings), **given)

    return _with_options(asked)


def of_scenario(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `of_job` to a command that takes a scenario and `settings`. Without a
    SCENARIO a scenario is made of the options, and only settings of failures stay `settings`."""

    @wraps(command)
    def asked(settings: tuple[str, ...], method: tuple[str, ...] = (), **given: Any) -> None:
        from sim.analysis.reliability.failures import of_table

        settings = (*method, *settings)
        named = {key: given.pop(key) for key in _JOB}
        if given.get("scenario", "") is None:
            apart = of_table(changes(settings))
            rest = [text for text in settings if text.partition("=")[0].strip() not in apart]
            given["scenario"] = scenario_of(None, rest, (), named)
            command(settings=apart, **given)
            return
        first = [f"{key}={value}" for key, value in named.items() if value is not None]
        command(settings=(*first, *settings), **given)

    return _with_options(asked)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_JOB.values()):
        command = option(command)
    return SETTINGS(command)


def scenario_of(
    name: str | None,
    settings: Sequence[str],
    profiles: Sequence[str] = (),
    job: Mapping[str, Any] | None = None,
) -> "BaseScenario":
    """Return the scenario with this name, or a scenario of the `job`'s model, topology and so on,
    with the values of `--set` and `--profile`. Raises `InputError`."""
    from sim.kind import described, load

    given = {key: value for key, value in (job or {}).items() if value is not None}
    overrides = changes(settings, profiles)
    if name is not None:
        return load(name, {**given, **overrides})
    for key in ("model", "topology"):
        if key not in given:
            fault = f"neither SCENARIO nor --{key}"
            raise InputError("command line", fault, f"name one, or --{key}; see `sim run --help`")
    if not {"plan", "plan.global_batch"} & overrides.keys():
        fault = "global_batch is missing: how many sequences an update takes"
        raise InputError("command line, plan", fault, "add --set plan.global_batch=256")
    from sim.interface.views.model import title

    name = f"{title(given['model'])}, {title(given['topology'])}"
    return described({"name": name, "plan": {}, **given}, overrides, "command line")


def changes(settings: Sequence[str], profiles: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of `--set` and `--profile`. Raises `InputError`."""
    from sim.scenario.setting_texts import setting, setting_of

    return dict(map(setting_of, profiles)) | dict(map(setting, settings))


def pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    """Return the KEY=VALUE pairs of an option. Raises `InputError`."""
    for text in given:
        if not all(text.partition("=")):
            raise InputError(option, f"{text!r} is not KEY=VALUE", "write both, = between them")
    return dict(text.split("=", 1) for text in given)
