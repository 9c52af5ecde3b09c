"""Output files are written completely or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import node

from sim.config.errors import InputError


@contextmanager
def atomic_write(path: Path | str) -> Iterator[Path]:
    """A temporary file beside `path` that replaces it when the block succeeds.

    Raises `InputError` where the file cannot be written; an older file is then left unchanged.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(f"{folder}/answer.txt") as part:
    ...         _ = part.write_text("42")
    ...     os.listdir(folder)
    ['answer.txt']
    """
    path = Path(path)
    try:
        _sweep(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_own_prefix(), suffix=path.suffix)
        os.close(handle)
        part = Path(name)
        try:
            yield part
            part.chmod(0o666 & ~_umask())
            _onto_disk(part)
            part.replace(path)
            _onto_disk(path.parent)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()
    except OSError as error:
        remedy = "name a file in a folder that exists and can be written to"
        raise InputError(str(path), f"cannot be written ({error.strerror})", remedy) from None


def _onto_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _own_prefix() -> str:
    return f".part-{node()}-{os.getpid()}-"


def _sweep(folder: Path) -> None:
    """Remove temporary files of processes of this machine that were killed while they wrote."""
    for left in folder.glob(f".part-{node()}-*"):
        owner = left.name.split("-")[2]
        if owner.isdigit() and not _lives(int(owner)):
            with suppress(OSError):
                left.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
