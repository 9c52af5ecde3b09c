"""How can a script write, rename and remove files without changing the files of a real run?

An overlay holds Python's changes of files that existed before the capture. New content lies in a
folder that is removed at the end; a table maps names of files to their content. So the script reads
back its own content, and does not find files that it has removed. New files are written where the
script writes them. Two kinds of changes do reach existing files: changes by appending or in place
(modes "a", "r+"), and changes made by other processes or by libraries in C.
"""

import builtins
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from errno import EEXIST, ENOENT, ENOTDIR, ENOTEMPTY
from stat import S_ISLNK, S_ISREG
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from sim.jobs.capturing.patches import Patches

_ASKED = ("stat", "lstat", "listdir", "scandir")
_CHANGED = ("open", "mkdir", "rmdir", "rename", "replace", "remove", "unlink")


class Overlay:
    """Files as a script sees them.

    `there` maps names of files to their paths in the overlay, and names of removed files to
    None.
    """

    def __init__(self) -> None:
        self._own = TemporaryDirectory(prefix="sim-")
        self._folder = os.path.realpath(self._own.name) + os.sep
        self._count = 0
        self._began = os.stat(self._folder).st_mtime_ns  # by the clock that stamps files
        self.there: dict[str, str | None] = {}
        self._os = SimpleNamespace(**{name: getattr(os, name) for name in (*_ASKED, *_CHANGED)})
        self._opened, self._linked, self._rmtree = builtins.open, os.symlink, shutil.rmtree

    def install(self, patches: Patches) -> None:
        """Patch the functions that open, list, rename, copy, remove and look up files."""
        patches.also(self._own.cleanup)
        for name in (*_ASKED, *_CHANGED):
            same = {"replace": "rename", "unlink": "remove"}.get(name, name)
            patches.set(os, name, _by_path(getattr(os, name), getattr(self, f"_{same}")))
        for owner in (builtins, io):
            patches.set(owner, "open", self._opens)
        for owner, name in ((os, "link"), (os, "symlink"), (shutil, "copyfile")):
            patches.set(owner, name, self._copies(getattr(owner, name)))
        for owner, name in ((os, "chmod"), (os, "utime"), (shutil, "copystat")):
            patches.set(owner, name, self._spares(getattr(owner, name)))
        patches.set(shutil, "rmtree", self._removes_tree)

    def place(self, path: Any) -> Any:
        """The path of a file's content. Raises `FileNotFoundError` if the file is removed."""
        found = self.there.get(absolute(path), path)
        if found is None:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), path)
        return found

    def new(self, path: Any) -> str:
        """A new path in the overlay for the content of a file."""
        self._count += 1
        place = self.there[absolute(path)] = f"{self._folder}{self._count}"
        return place

    def written(self, path: Any) -> Any:
        """The path to which a file is written: in the overlay if an older file has this name."""
        name = absolute(path)
        if name:
            self.place(os.path.dirname(name))
        return self.new(path) if name in self.there or self._older(name) else path

    def holds(self, path: Any) -> bool:
        """Whether a path is in the overlay's own folder."""
        return absolute(path).startswith(self._folder)

    def _changed(self, path: Any) -> Any:
        """Where to write changes of a file that is in the overlay or was removed."""
        self.place(os.path.dirname(absolute(path)))
        before = self.there[absolute(path)]
        if before is not None and not S_ISLNK(self._os.lstat(before).st_mode):
            return before
        place = self.new(path)
        if before is not None:
            self._copy(before, place)
        return place

    def _copy(self, place: str, other: str) -> None:
        with self._opened(place, "rb") as source, self._opened(other, "wb") as target:
            shutil.copyfileobj(source, target)

    def _older(self, path: str, *, link: bool = False) -> bool:
        """Whether a file, or a `link` itself, was there before the capture."""
        try:
            found = (self._os.lstat if link else self._os.stat)(path)
        except (OSError, ValueError):
            return False
        file = S_ISREG(found.st_mode) or (link and S_ISLNK(found.st_mode))
        return file and found.st_mtime_ns < self._began

    def _kept(self, path: str) -> bool:
        """Whether a path is or contains a file that was there before the capture, or that is in the
        overlay."""
        if path in self.there or self._older(path, link=True):
            return True
        inside = self._inside(path) if _is_folder(path) else []
        return bool(self._within(path)) or any(map(self._kept, inside))

    def _inside(self, folder: str) -> list[str]:
        return [os.path.join(folder, name) for name in self._listdir(folder)]

    def _within(self, folder: str) -> list[str]:
        """Names in the table (`there`) that lie in a folder."""
        inside = os.path.join(folder, "")
        return [name for name in self.there if name.startswith(inside)]

    def _opens(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        name = absolute(file)
        if "w" in mode or ("x" in mode and name in self.there and self.there[name] is None):
            place = self.written(file)
        elif name in self.there and {*mode} & {*"a+"}:
            place = self._changed(file)
        else:
            place = self.place(file)
        return self._opened(place, mode, *args, **kwargs)

    def _open(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if absolute(path) in self.there:
            writes = flags & (os.O_WRONLY | os.O_RDWR)
            path = self._changed(path) if writes else self.place(path)
        found: int = self._os.open(path, flags, *args, **kwargs)
        return found

    def _stat(self, path: Any, **kwargs: Any) -> os.stat_result:
        found: os.stat_result = self._os.stat(self.place(path), **kwargs)
        return found

    def _lstat(self, path: Any, **kwargs: Any) -> os.stat_result:
        place = self.place(path)
        found: os.stat_result = self._os.lstat(place, **kwargs)
        if self.holds(place):  # a link in the overlay stands for a file that was there before
            file: os.stat_result = self._os.stat(place, **kwargs)
            return file if S_ISREG(file.st_mode) else found
        return found

    def _listdir(self, path: Any = ".") -> list[Any]:
        real = self._os.listdir(self.place(path))
        folder = absolute(path)
        if not folder or not self._within(folder):
            return list(real)
        seen = dict.fromkeys(os.path.join(folder, os.fsdecode(name)) for name in real)
        seen |= dict.fromkeys(n for n in self._within(folder) if os.path.dirname(n) == folder)
        names = [os.path.basename(n) for n in seen if self.there.get(n, "") is not None]
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def _scandir(self, path: Any = ".") -> Any:
        folder = absolute(path)
        if not folder or not (folder in self.there or self._within(folder)):
            return self._os.scandir(path)
        return _Entries(_Entry(os.fspath(path), name) for name in self._listdir(path))

    def _mkdir(self, path: Any, *args: Any, **kwargs: Any) -> None:
        name = absolute(path)
        self.place(os.path.dirname(name))
        if name in self.there and self.there[name] is None:
            del self.there[name]
            if os.path.isdir(name):
                return
        self._os.mkdir(path, *args, **kwargs)

    def _rmdir(self, path: Any, **_: Any) -> None:
        if self._listdir(path):
            raise OSError(ENOTEMPTY, os.strerror(ENOTEMPTY), path)
        if self._os.listdir(path):  # only files that the script has removed are left
            self.there[absolute(path)] = None
        else:
            self._os.rmdir(path)

    def _remove(self, path: Any, **_: Any) -> None:
        name = absolute(path)
        if name in self.there or self._older(name, link=True):
            self._forget(path)
        else:
            self._os.remove(path)

    def _forget(self, path: Any) -> Any:
        """Return where the content of a file is; the script no longer finds the file."""
        place, name = self.place(path), absolute(path)
        self.there.pop(name, None)
        with suppress(FileNotFoundError):
            self._os.lstat(name)
            self.there[name] = None
        return place

    def _removes_tree(self, path: Any, *args: Any, **kwargs: Any) -> None:
        name = absolute(path)
        if not _is_folder(name) or not self._kept(name):
            self._rmtree(path, *args, **kwargs)
            return
        for child in self._inside(name):
            (self._removes_tree if _is_folder(child) else self._remove)(child)
        self._rmdir(name)

    def _rename(self, src: Any, dst: Any, **_: Any) -> None:
        before, after = absolute(src), absolute(dst)
        folder, new = _is_folder(before), not os.path.lexists(after)
        os.lstat(src)
        os.lstat(os.path.dirname(after))
        if before == after:
            return
        apart = self._kept(before) or self._kept(after) or after in self.there
        if not apart or after.startswith(before + os.sep):
            self._os.replace(src, dst)
        elif not new and folder != _is_folder(after):
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), dst)
        elif folder and not new and os.listdir(after):
            raise OSError(ENOTEMPTY, os.strerror(ENOTEMPTY), dst)
        elif folder:
            if new:
                os.mkdir(after)
            for child in self._inside(before):
                self._rename(child, os.path.join(after, os.path.basename(child)))
            self._rmdir(before)
        elif self._kept(before):
            place = self._forget(before)
            if self.holds(place):
                self.there[after] = place
            else:
                self._linked(place, self.new(after))
        else:
            self._copy(before, self.new(after))
            self._os.remove(before)

    def _copies(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def copy(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
            whole = os.path.join(os.path.dirname(dst), src) if usual.__name__ == "symlink" else src
            before, after = absolute(whole), absolute(dst)
            if before not in self.there and after not in self.there:
                return usual(src, dst, *args, **kwargs)
            place = self.place(before)
            os.stat(os.path.dirname(after))
            again = usual.__name__ == "copyfile" and not _is_folder(after)
            if before == after or (os.path.lexists(after) and not again):
                raise FileExistsError(EEXIST, os.strerror(EEXIST), dst)
            if S_ISREG(self._os.stat(place).st_mode):
                self._copy(place, self.new(after))
            else:
                usual(place, self.new(after))
            return dst

        return copy

    def _spares(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        """Leave the modes and times of a file unchanged if the file was there before the capture or
        is in the overlay."""

        def change(*args: Any, **kwargs: Any) -> None:
            names = [absolute(path) for path in args[:2]]
            if not any(name in self.there or self._older(name) for name in names):
                usual(*args, **kwargs)

        return change


class _Entry:
    """A file or a folder as `os.scandir` describes it."""

    def __init__(self, folder: str, name: str) -> None:
        self.name, self.path = name, os.path.join(folder, name)

    def __fspath__(self) -> str:
        return self.path

    def is_symlink(self) -> bool:
        return os.path.islink(self.path)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self.path) and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self.path) and (follow_symlinks or not self.is_symlink())

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return (os.stat if follow_symlinks else os.lstat)(self.path)

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino


class _Entries(AbstractContextManager[Iterator[_Entry]], Iterator[_Entry]):
    """An iterator with a method `close`, like the iterator of `os.scandir`."""

    def __init__(self, entries: Iterable[_Entry]) -> None:
        self._rest = iter(entries)

    def __next__(self) -> _Entry:
        return next(self._rest)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing, as nothing is open."""


def _by_path(usual: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A function on files: `ours`, but `usual` if the path begins at an open folder (`dir_fd`)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        open_folder = any("dir_fd" in key and kwargs[key] is not None for key in kwargs)
        return (usual if open_folder else ours)(*args, **kwargs)

    return call


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def absolute(path: Any) -> str:
    """The absolute form of a path; "" for a file descriptor."""
    return os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""
