"""Input files are read here and nowhere else, so the files that an answer depends on are known.

`recorded` collects everything that was looked at while an answer was computed: the content of
files, whether a file exists (a file of the user's own would win), which files a folder holds.
An answer is still true if all of these are found in the same `state` (`holds`). Within a process,
`remembered` caches answers on this condition, so no cache uses an older version of a file.
"""

import hashlib
import os
import stat
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

from sim.config.errors import InputError

Args = ParamSpec("Args")
Answer = TypeVar("Answer")

Look = Literal["content", "presence", "folder"]
Reads = dict[tuple[Look, str], str]  # what was looked at, and its state then

MOST = 1 << 28  # bytes of a file; larger tables, traces or descriptions are refused
LESS = "take the part that is needed, or record a trace of fewer steps, or without with_stack"
_PACKAGED = "<packaged>/"
_FRESH = 100_000_000  # ns after a write, in which another write may have the same time stamp

_Stamp = tuple[int, ...]
_reads: ContextVar[Reads | None] = ContextVar("reads", default=None)
_states: ContextVar[Reads | None] = ContextVar("states", default=None)
_places: ContextVar[tuple[Path, ...] | None] = ContextVar("places", default=None)
_known: dict[tuple[Look, str], tuple[_Stamp, str]] = {}


@cache
def packaged_root() -> Path:
    """The folder that holds `models/`, `topologies/` and `scenarios/` of this installation."""
    package = Path(__file__).resolve().parents[1]
    data = package / "data"
    return data if data.is_dir() else package.parent


def content(path: Path, *, where: str = "", most: int = MOST) -> bytes:
    """The bytes of a file; `where` is its name in messages.

    Raises `InputError` for a path that cannot be read, that is no file (a pipe may never end) or
    that holds more than `most` bytes.
    """
    where = where or str(path)
    if not allowed(path):
        raise InputError(where, "may not be read here", "take a name of `sim list`")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            _note("content", path, "")
            kind = "a folder" if path.is_dir() else "a pipe or a device, not a file"
            raise InputError(where, f"is {kind}", "name a file")
        with path.open("rb") as file:
            before = _stamp(os.fstat(file.fileno()))
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        _note("content", path, "")
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(where, f"cannot be read ({reason})", "check the path") from None
    if len(data) > most:
        raise InputError(where, f"is larger than {most >> 20} MiB", LESS)
    _note("content", path, _kept("content", path, before, _digest(data)))
    return data


def unpacked(
    data: bytes,
    where: str,
    remedy: str = "take the whole file",
    most: int = MOST,
    *,
    cut_short: bool = False,
) -> bytes:
    """The content of a gzip file; other data as they are. Raises `InputError` for a tar archive,
    for more than `most` bytes and, unless `cut_short` is allowed, for a gzip file that is not
    whole."""
    if data[:2] == b"\x1f\x8b":
        whole, rest, eof = bytearray(), data, False
        try:
            while rest and len(whole) <= most:  # a file may hold several parts, then zeros
                part = zlib.decompressobj(wbits=31)
                whole += part.decompress(rest, most + 1 - len(whole))
                rest, eof = part.unused_data.lstrip(b"\0"), part.eof
        except zlib.error:
            eof = False
        if len(whole) > most:
            raise InputError(where, f"unpacks to more than {most >> 20} MiB", remedy)
        if not (eof or cut_short):
            raise InputError(where, "is not a whole gzip file", remedy)
        data = bytes(whole)
    if data[257:262] == b"ustar":
        raise InputError(where, "is a tar archive", f"run tar xf {where}, and give its files")
    return data


def text(path: Path, *, where: str = "", errors: str = "strict", most: int = MOST) -> str:
    """The content of a file as text, unpacked, with Python's line ends and no byte order mark.
    Raises `InputError`, also for content that is not UTF-8."""
    try:
        data = unpacked(content(path, where=where, most=most), where or str(path), most=most)
        found = data.decode("utf-8-sig", errors)
    except UnicodeDecodeError:
        raise InputError(where or str(path), "is not UTF-8 text", "save it as UTF-8") from None
    return found.replace("\r\n", "\n").replace("\r", "\n")


def exists(path: Path) -> bool:
    """Whether the path is a file that may be read."""
    return allowed(path) and bool(_note("presence", path, _presence(path)))


def listed(folder: Path, suffix: str) -> list[Path]:
    """The files of a folder whose names end in `suffix`, sorted; none without such a folder."""
    if not allowed(folder):
        return []
    _note("folder", folder, state("folder", name_of(folder)))
    return sorted(folder / name for name in _names(folder) if name.endswith(suffix))


@contextmanager
def only(places: Iterable[Path]) -> Iterator[None]:
    """Within the block, only files in `places` (files and folders) can be read or found to
    exist."""
    token = _places.set(tuple(place.resolve() for place in places))
    try:
        yield
    finally:
        _places.reset(token)


def allowed(path: Path) -> bool:
    """Whether a path may be looked at within the block of `only`, if any."""
    places = _places.get()
    if places is None:
        return True
    try:
        whole = path.resolve()
    except (OSError, ValueError):
        return False
    return any(whole.is_relative_to(place) for place in places)


@contextmanager
def recorded() -> Iterator[Reads]:
    """Collect everything that is looked at within the block."""
    seen: Reads = {}
    token = _reads.set(seen)
    try:
        yield seen
    finally:
        _reads.reset(token)
        rest_on(seen)


def so_far() -> list[str]:
    """The names of the files that have been read within the innermost `recorded` block."""
    return [
        name for (look, name), found in (_reads.get() or {}).items() if look == "content" and found
    ]


def remembered(most: int) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    """Cache the last `most` answers of a function as long as the files that it read are equal."""

    def decorate(function: Callable[Args, Answer]) -> Callable[Args, Answer]:
        kept: OrderedDict[object, tuple[Reads, Answer]] = OrderedDict()

        @wraps(function)
        def remembering(*args: Args.args, **kwargs: Args.kwargs) -> Answer:
            key = (args, tuple(kwargs.items()))
            known = kept.get(key)
            if known is not None and holds(known[0]):
                rest_on(known[0])
                return known[1]
            with recorded() as seen:
                answer = function(*args, **kwargs)
            kept[key] = seen, answer
            kept.move_to_end(key)
            while len(kept) > most:
                kept.popitem(last=False)
            return answer

        return remembering

    return decorate


def kept(
    most: int, key: Callable[Args, object]
) -> Callable[[Callable[Args, Answer]], Callable[Args, Answer]]:
    """Like `remembered`, but compares a `key` of the arguments, which needs no hash."""

    def decorate(function: Callable[Args, Answer]) -> Callable[Args, Answer]:
        known: deque[tuple[object, Reads, Answer]] = deque(maxlen=most)

        @wraps(function)
        def remembering(*args: Args.args, **kwargs: Args.kwargs) -> Answer:
            asked = key(*args, **kwargs)
            for before, seen, answer in known:
                if before == asked and holds(seen):
                    rest_on(seen)
                    return answer
            with recorded() as seen:
                answer = function(*args, **kwargs)
            known.appendleft((asked, seen, answer))
            return answer

        return remembering

    return decorate


@contextmanager
def at_once() -> Iterator[None]:
    """Within the block, the state of each file is looked up only once, as if no time passed."""
    token = _states.set({})
    try:
        yield
    finally:
        _states.reset(token)


def holds(reads: Mapping[tuple[Look, str], str]) -> bool:
    """Whether everything in `reads` is still found in the same state."""
    return all(state(look, name) == found for (look, name), found in reads.items())


def state(look: Look, name: str) -> str:
    """The present state of a file or folder: a digest or "a file"; empty if it does not exist."""
    states = _states.get()
    if states is None:
        return _state(look, name)
    if (look, name) not in states:
        states[look, name] = _state(look, name)
    return states[look, name]


def _state(look: Look, name: str) -> str:
    path = path_of(name)
    if look == "presence":
        return _presence(path)
    try:
        now = _stamp(path.stat())
    except (OSError, ValueError):
        return ""
    known = _known.get((look, str(path)))
    if known is not None and known[0] == now:
        return known[1]
    if look == "folder":
        return _kept(look, path, now, _digest("\n".join(_names(path)).encode()))
    try:
        with recorded():
            data = content(path)
    except InputError:
        return ""
    return _digest(data)


def name_of(path: Path) -> str:
    """The name of a path, independent of where the program and the user's folder lie.

    >>> name_of(packaged_root() / "models" / "bert-large.toml"), name_of(Path("mine.toml"))
    ('<packaged>/models/bert-large.toml', 'mine.toml')
    """
    if path.is_relative_to(packaged_root()):
        return _PACKAGED + path.relative_to(packaged_root()).as_posix()
    return str(path)


def path_of(name: str) -> Path:
    """The path of a name that `name_of` returned."""
    inside = name.removeprefix(_PACKAGED)
    return Path(name) if inside == name else packaged_root() / inside


def _presence(path: Path) -> str:
    return "a file" if os.path.isfile(path) else ""  # false for names that no file can have


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _note(look: Look, path: Path, found: str) -> str:
    rest_on({(look, name_of(path)): found})
    return found


def rest_on(seen: Reads) -> None:
    """Add `seen` to everything that was looked at, because a cached answer depends on it."""
    reads = _reads.get()
    if reads is not None:
        reads.update(seen)


def _kept(look: Look, path: Path, now: _Stamp, digest: str) -> str:
    """Cache a digest with the file's stamp, unless a further write may have the same stamp."""
    if time.time_ns() - now[2] > _FRESH:
        _known[look, str(path.absolute())] = _known[look, str(path)] = now, digest
    return digest


def _stamp(status: os.stat_result) -> _Stamp:
    return (
        status.st_dev, status.st_ino, max(status.st_mtime_ns, status.st_ctime_ns), status.st_size
    )  # fmt: skip


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def joined(parts: Iterable[str]) -> str:
    """A digest of several texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(part.encode())
    return digest.hexdigest()
