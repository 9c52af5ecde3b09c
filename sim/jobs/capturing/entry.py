"""How is a training script started: as a file, a module or code, with a launcher or without?"""

import linecache
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError

_ALL = 8  # GPUs of a node, if a launcher is given "gpu" or "auto"


@contextmanager
def _called(first: str, arguments: Sequence[str], folder: str) -> Iterator[None]:
    old = sys.argv, list(sys.path)
    sys.argv, sys.path[:0] = [first, *arguments], [folder]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = old


@dataclass(frozen=True)
class Script:
    """`python train.py`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def folder(self) -> str:
        return str(self.path.resolve().parent)

    def run(self, arguments: Sequence[str]) -> None:
        with _called(str(self.path), arguments, self.folder):
            runpy.run_path(str(self.path.resolve()), run_name="__main__")


@dataclass(frozen=True)
class Module:
    """`python -m package.train`."""

    name: str

    @property
    def folder(self) -> str:
        return os.getcwd()

    def run(self, arguments: Sequence[str]) -> None:
        with _called(self.name, arguments, self.folder):
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)


@dataclass(frozen=True)
class Code:
    """`python -c "..."`."""

    text: str
    name: str = "-c"

    @property
    def folder(self) -> str:
        return os.getcwd()

    def run(self, arguments: Sequence[str]) -> None:
        file = f"{self.folder}/-c"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        with _called("-c", arguments, self.folder):
            exec(compile(self.text, file, "exec"), {"__name__": "__main__"})


Entry = Script | Module | Code
"""What python runs: its `name`, and the `folder` of the source whose lines are recorded."""


@dataclass(frozen=True)
class Started:
    """The effect of a command line. It starts an entry with arguments and with variables of the
    environment, in a `world` of ranks (0: the command does not say how many)."""

    entry: Entry
    arguments: tuple[str, ...]
    world: int = 0
    environment: Mapping[str, str] | None = None


def _file(name: str) -> Script:
    """The script of this name. Raises `InputError` if there is no such file."""
    if not Path(name).is_file():
        raise InputError(name, "is no file", "name the script that trains the model")
    return Script(Path(name))


def started(words: Sequence[str]) -> Started:
    """Parse a command line that starts a script. Raises `InputError`.

    >>> started(["torchrun", "--nnodes=2", "--nproc-per-node", "8", "-m", "pkg.train", "--lr", "1"])
    Started(entry=Module(name='pkg.train'), arguments=('--lr', '1'), world=16, environment=None)
    >>> started(["python", "-m", "torch.distributed.run", "--nproc_per_node=4", "-m", "x"]).world
    4
    """
    first, *rest = words
    name = Path(first).name
    if name.startswith("python"):
        rest = [word for word in rest if word != "-u"]
        if rest[:1] == ["-m"] and " ".join(rest[1:2]) in _MODULES:
            return started([*_MODULES[rest[1]], *rest[2:]])
        return _plain(rest, first)
    if name in _LAUNCHERS:
        return _LAUNCHERS[name](rest, name)
    return Started(_file(first), tuple(rest))


def _plain(words: Sequence[str], where: str) -> Started:
    kinds: dict[str, Callable[[str], Entry]] = {"-m": Module, "-c": Code}
    if len(words) > 1 and words[0] in kinds:
        return Started(kinds[words[0]](words[1]), tuple(words[2:]))
    if not words:
        raise InputError(where, "names no script", "name the script that trains the model")
    return Started(_file(words[0]), tuple(words[1:]))


def _split(words: Sequence[str], where: str) -> tuple[dict[str, str], list[str]]:
    """The options of a launcher, and the words that follow the options. The following words begin
    with "-m", or with the first word that ends in ".py"."""
    options: dict[str, str] = {}
    for place, word in enumerate(words):
        if word in ("-m", "--module"):
            return options, ["-m", *words[place + 1 :]]
        if not word.startswith("-") and word.endswith(".py"):
            return options, list(words[place:])
        key, _, value = word.lstrip("-").partition("=")
        if word.startswith("-"):
            following = words[place + 1] if place + 1 < len(words) else ""
            options[key.replace("-", "_")] = value or following
    raise InputError(where, "starts no script", "name the script that trains the model")


def _number(options: Mapping[str, str], *keys: str) -> int:
    """The number given by the first of these options that is present; 1 if all are missing."""
    text = next((options[key] for key in keys if key in options), "1")
    if text in ("gpu", "auto"):
        return _ALL
    last = text.rpartition(":")[2]
    if not last.isdigit() or not int(last):
        raise InputError(f"--{keys[0]} {text}", "is no number of processes", "write 8, say")
    return int(last)


def _torchrun(words: Sequence[str], where: str) -> Started:
    options, rest = _split(words, where)
    world = _number(options, "nnodes") * _number(options, "nproc_per_node")
    plain = _plain(rest, where)
    return Started(plain.entry, plain.arguments, world)


def _launch(words: Sequence[str], where: str) -> Started:
    """Parse torch.distributed.launch, which also passes the script its rank as an argument."""
    plain = _torchrun(words, where)
    told = {"--use_env", "--use-env"} & {*words[: len(words) - len(plain.arguments)]}
    first = () if told else ("--local-rank=0",)
    return Started(plain.entry, (*first, *plain.arguments), plain.world)


def _deepspeed(words: Sequence[str], where: str) -> Started:
    """Parse DeepSpeed's launcher, which passes the script its rank as an argument."""
    options, rest = _split(words, where)
    gpus = _number(options, "num_gpus") if "num_gpus" in options else _ALL
    plain = _plain(rest, where)
    first = ("--local_rank=0",)
    return Started(plain.entry, (*first, *plain.arguments), _number(options, "num_nodes") * gpus)


def _accelerate(words: Sequence[str], where: str) -> Started:
    """Parse accelerate's launcher, whose own code computes the environment variables to set."""
    if words[:1] != ["launch"]:
        raise InputError(where, "starts nothing", "write accelerate launch ... train.py")
    _, rest = _split(words[1:], where)
    plain = _plain(rest, where)
    try:
        commands = import_module("accelerate.commands.launch")
        launching = import_module("accelerate.utils.launch")
    except ImportError:
        raise InputError("accelerate", "is not installed", "pip install accelerate") from None
    asked = commands.launch_command_parser().parse_args(list(words[1:]))
    asked, *_ = commands._validate_launch_command(asked)  # reads the user's file of defaults, too
    found: dict[str, str] = launching.prepare_multi_gpu_env(asked)
    ours = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    changed = {key: value for key, value in found.items() if os.environ.get(key) != value}
    told = {key: value for key, value in changed.items() if not key.endswith(ours)}
    return Started(plain.entry, plain.arguments, asked.num_processes, told)


_LAUNCHERS: dict[str, Callable[[Sequence[str], str], Started]] = {
    "torchrun": _torchrun,
    "deepspeed": _deepspeed,
    "accelerate": _accelerate,
    "torch.distributed.launch": _launch,
}
# Launchers that are started as modules.
_MODULES = {
    "torch.distributed.run": ["torchrun"],
    "torch.distributed.launch": ["torch.distributed.launch"],
    "accelerate": ["accelerate"],
    "accelerate.commands.launch": ["accelerate", "launch"],
    "deepspeed.launcher.runner": ["deepspeed"],
}


class Late(BaseException):
    """The time limit has passed. No `except Exception` of a script catches this exception."""


@contextmanager
def limited(seconds: float, place: Callable[[], str], told: Callable[[], str]) -> Iterator[None]:
    """Raise `InputError` with the script's present line after some `seconds` (0: never)."""
    if not seconds:
        yield
        return

    def over(*_: Any) -> None:
        raise Late(place())

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Late as late:
        fault = f"not done after {seconds:g} s ({told()})"
        raise InputError(str(late), fault, "give a longer --timeout, or fewer steps") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
