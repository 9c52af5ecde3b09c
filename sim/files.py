"""Output files that are either whole or not there."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sim.errors import InputError


@contextmanager
def whole(path: Path | str) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well.

    Raises `InputError` where the folder cannot be written to.
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-", suffix=path.suffix)
    except OSError as error:
        remedy = "name a file in a folder that exists and can be written to"
        raise InputError(str(path), f"cannot be written ({error.strerror})", remedy) from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        os.chmod(part, 0o644)
        part.replace(path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
