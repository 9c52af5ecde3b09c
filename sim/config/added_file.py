"""A Python file of the user that is added to a package as a module, for this process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TypeVar

from sim.config import reads
from sim.config.errors import InputError
from sim.config.plugins import ADDED, is_added

Answer = TypeVar("Answer")


def add_file(package: str, path: Path, check: Callable[[ModuleType], Answer]) -> Answer:
    """Add a file of the user as a module of the package; return the answer of `check` for the
    module. The file may import files of its folder. It is imported again if its text or the text of
    such a file has changed. Raises `InputError` where the import or `check` fails; a file that
    fails is not added."""
    name, place = f"{package}.{path.stem}", path.resolve()
    if path.suffix != ".py":
        raise InputError(str(path), "is no Python file", "name one that ends in .py")
    reads.content(path)
    if find_spec(name) is not None and name not in ADDED:
        raise InputError(str(path), f"{path.stem!r} is there already", "rename the file")
    texts = ADDED.get(name, {})
    if place in texts and all(reads.content(file) == text for file, text in texts.items()):
        return check(sys.modules[name])
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        texts = _executed(module, place)
        answer = check(module)
    except Exception as error:
        del sys.modules[name]
        if isinstance(error, InputError):
            raise
        fault = f"cannot be imported ({type(error).__name__}: {error})"
        raise InputError(str(path), fault, "mend the file") from error
    ADDED[name] = texts
    return answer


def added() -> dict[Path, bytes]:
    """The text of each added file, and of each file that an added file imports from its
    folder."""
    return {file: text for texts in ADDED.values() for file, text in texts.items()}


@contextmanager
def blaming(module: str) -> Iterator[None]:
    """Within the block, an error in a line of a user's module or added file becomes an
    `InputError` that names the line."""
    try:
        yield
    except Exception as error:
        if isinstance(error, InputError) or not is_added(module):
            raise
        files = {Path(sys.modules[module].__file__ or "").resolve(), *added()}
        causes = (error.__cause__ or error, error)
        frames = [frame for cause in causes for frame in reversed(extract_tb(cause.__traceback__))]
        for frame in frames:
            if (file := Path(frame.filename).resolve()) in files:
                fault = f"fails in line {frame.lineno}: {type(error).__name__}: {error}"
                raise InputError(str(file), fault.splitlines()[0], "mend the file") from error
        raise


def _executed(module: ModuleType, place: Path) -> dict[Path, bytes]:
    """Execute a module whose file lies at `place`; return the texts of the file and of the files of
    its folder that it imports, which are imported anew."""
    folder, known = place.parent, added()
    for name in [name for name, file in _inside(folder) if file in known and name not in ADDED]:
        del sys.modules[name]
    before = {name for name, _ in _inside(folder)}
    sys.path.insert(0, str(folder))
    try:
        module.__spec__.loader.exec_module(module)  # type: ignore[union-attr]
    finally:
        sys.path.remove(str(folder))
    files = {place, *(file for name, file in _inside(folder) if name not in before)}
    return {file: reads.content(file) for file in files}


def _inside(folder: Path) -> Iterator[tuple[str, Path]]:
    """The loaded modules whose files lie in a folder or below it, by name."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and folder in (path := Path(file).resolve()).parents:
            yield name, path
