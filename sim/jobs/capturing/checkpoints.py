"""How does a script find a checkpoint again whose tensors have no content?

Nothing is written, and no file that is there is touched. The script's own process sees a file where
it has saved one: it may ask for it, rename, copy, delete and load it. Its tensors are of the right
shape, type and device, and have the same value everywhere.
"""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from io import BytesIO
from pathlib import Path
from stat import S_IFREG
from time import time
from types import ModuleType
from typing import Any
from zipfile import is_zipfile

from sim.jobs.capturing.patches import Patches


def install(torch: Any, patches: Patches, told: Callable[[], None]) -> None:
    """Patch saves and loads; a checkpoint that is not written is `told`."""
    unwritten = Unwritten()
    unwritten.install(patches)
    _saves(torch, patches, told, unwritten)
    _saves_shards(patches, told)
    _loads(torch, patches, unwritten)


class Unwritten:
    """Files that a script believes to be there, and what it would read from them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.began = time()

    def read(self, path: Any) -> BytesIO | None:
        content = self.files.get(_absolute(path))
        return None if content is None else BytesIO(content)

    def install(self, patches: Patches) -> None:
        """Patch what renames, copies, deletes and asks for files."""
        self._stat = os.stat
        patches.set(os, "stat", self._asked)
        for name in ("rename", "replace"):
            patches.set(os, name, self._renames(getattr(os, name)))
        for owner, name in (
            (os, "link"), (os, "symlink"),
            (shutil, "copyfile"), (shutil, "copy"), (shutil, "copy2"),
        ):  # fmt: skip
            patches.set(owner, name, self._copies(getattr(owner, name)))
        for name in ("remove", "unlink"):
            patches.set(os, name, self._deletes(getattr(os, name)))

    def _asked(self, path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        try:
            return self._stat(path, *args, **kwargs)
        except FileNotFoundError:
            content = self.files.get(_absolute(path))
            if content is None:
                raise
            mode, now = S_IFREG | 0o644, int(time())
            return os.stat_result((mode, 0, 0, 1, 0, 0, len(content), now, now, now))

    def _renames(self, usual: Callable[..., None]) -> Callable[..., None]:
        def rename(src: Any, dst: Any, **kwargs: Any) -> None:
            before, after = _absolute(src), _absolute(dst)
            if before not in self.files:
                usual(src, dst, **kwargs)
            for name in [*self.files]:  # those in a folder go with it
                if name == before or name.startswith(before + os.sep):
                    self.files[after + name.removeprefix(before)] = self.files.pop(name)

        return rename

    def _copies(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def copy(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
            content = self.files.get(_absolute(src))
            if content is None:
                return usual(src, dst, *args, **kwargs)
            whole = os.path.join(dst, os.path.basename(src)) if os.path.isdir(dst) else dst
            self.files[_absolute(whole)] = content
            return whole

        return copy

    def _deletes(self, usual: Callable[..., None]) -> Callable[..., None]:
        def delete(path: Any, **kwargs: Any) -> None:
            gone = None if kwargs else self.files.pop(_absolute(path), None)
            if kwargs or (gone is None and not self._older(path)):
                usual(path, **kwargs)

        return delete

    def _older(self, path: Any) -> bool:
        """Whether an earlier run's checkpoint would make room for one that is not written."""
        kinds = {os.path.splitext(name)[1] for name in self.files}
        same = os.path.splitext(_absolute(path))[1] in kinds
        return same and os.path.lexists(path) and os.lstat(path).st_mtime < self.began


def _absolute(path: Any) -> str:
    """Of a path, that is no descriptor."""
    return os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""


def _saves(torch: Any, patches: Patches, told: Callable[[], None], unwritten: Unwritten) -> None:
    """Checkpoints with tensors of the device are not written; existing files stay."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import _disable_current_modes

    usual, reduced = torch.save, torch.Tensor.__reduce_ex__
    saving: list[list[bool]] = []  # an entry for each tensor without content

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        met: list[bool] = []
        saving.append(met)
        content = BytesIO()
        try:
            usual(obj, content, *args, **kwargs)
        except Exception:
            if not met:
                raise
        finally:
            saving.pop()
        if not met:
            usual(obj, f, *args, **kwargs)
            return
        told()
        if name := _absolute(f):
            unwritten.files[name] = content.getvalue()
        elif isinstance(f, BytesIO):
            f.write(content.getvalue())

    def without(tensor: Any, protocol: Any) -> Any:
        if not saving:
            return reduced(tensor, protocol)
        saving[-1].append(True)
        with _disable_current_modes():
            again, own = reduced(torch.ones(1).to(tensor.dtype), protocol)
        own[0]._fake_device = tensor.device
        shape = tuple(map(int, tensor.shape))
        return again, (own[0], 0, shape, (0,) * len(shape), tensor.requires_grad, *own[5:])

    patches.set(torch, "save", save)
    patches.set(FakeTensor, "__reduce_ex__", without)


def _saves_shards(patches: Patches, told: Callable[[], None]) -> None:
    """Those of `torch.distributed.checkpoint`, which all are of the device, are not written."""

    def distributed(module: ModuleType) -> None:
        saver = module.state_dict_saver

        def nothing(*_: Any, **__: Any) -> Any:
            told()
            return saver.Metadata({})

        def later(*_: Any, **__: Any) -> Any:
            done: Future[Any] = Future()
            done.set_result(nothing())
            return done

        for owner in (module, saver):
            patches.set(owner, "save", nothing)
            patches.set(owner, "async_save", later)

    patches.when_imported("torch.distributed.checkpoint", distributed)


def _loads(torch: Any, patches: Patches, unwritten: Unwritten) -> None:
    """Files are read on the host, where content is real; then tensors move to where they belong."""
    from torch.utils._python_dispatch import _disable_current_modes

    usual = torch.load

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        def restored(storage: Any, location: str) -> Any:
            place = map_location
            if isinstance(place, dict):
                place = place.get(location)
            elif callable(place):
                place = place(storage, location)
            storage._fake_device = str(getattr(place, "device", place) or location)
            return storage

        f = unwritten.read(f) or f
        if isinstance(f, BytesIO):
            kwargs.pop("mmap", None)
        elif isinstance(f, str | Path) and is_zipfile(f):
            kwargs.setdefault("mmap", True)  # large tensors take no memory
        with _disable_current_modes():
            found = usual(f, restored, *args, **kwargs)
        return torch.utils._pytree.tree_map_only(torch.Tensor, moved, found)

    def moved(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        place, storage._fake_device = torch.device(storage._fake_device or "cpu"), None
        if place.type != "cuda":
            return tensor
        new, learns = tensor.detach().to(place), tensor.requires_grad
        weight = isinstance(tensor, torch.nn.Parameter)
        return torch.nn.Parameter(new, learns) if weight else new.requires_grad_(learns)

    for owner in (torch, torch.serialization):
        patches.set(owner, "load", load)
