"""How does a script find its checkpoint again, although the saved tensors have no content?

The script saves the checkpoint in an overlay of the files (`Overlay`). It finds the checkpoint
under the same name, and may rename, copy, delete and load it. The loaded tensors have the right
shape, type and device, and the same value everywhere.
"""

from collections.abc import Callable
from concurrent.futures import Future
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import is_zipfile

from sim.jobs.capturing.files import Overlay, absolute
from sim.jobs.capturing.patches import Patches


def install(torch: Any, patches: Patches, told: Callable[[], None]) -> None:
    """Patch saves and loads; `told` is called at each save of tensors without content."""
    overlay = Overlay()
    overlay.install(patches)
    _saves(torch, patches, told, overlay)
    _saves_shards(patches, told)
    _loads(torch, patches, overlay)
    _safetensors(torch, patches, overlay)


def _saves(torch: Any, patches: Patches, told: Callable[[], None], overlay: Overlay) -> None:
    """Patch `torch.save` to write checkpoints with tensors of the device only in the overlay."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import _disable_current_modes

    usual, reduced = torch.save, torch.Tensor.__reduce_ex__
    saving: list[list[bool]] = []  # for each save under way: a True for each tensor without content

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
            usual(obj, overlay.written(f), *args, **kwargs)
            return
        told()
        name = getattr(f, "name", "")
        if absolute(f):
            Path(overlay.new(f)).write_bytes(content.getvalue())
        elif isinstance(f, BytesIO) or overlay.holds(name):
            f.write(content.getvalue())
        elif absolute(name):
            Path(overlay.new(name)).write_bytes(content.getvalue())

    def without(tensor: Any, protocol: Any) -> Any:
        if not saving:
            return reduced(tensor, protocol)
        saving[-1].append(True)
        with _disable_current_modes():
            again, args = reduced(torch.ones(1).to(tensor.dtype), protocol)
        args[0]._fake_device = tensor.device
        shape = tuple(map(int, tensor.shape))
        return again, (args[0], 0, shape, (0,) * len(shape), tensor.requires_grad, *args[5:])

    patches.set(torch, "save", save)
    patches.set(FakeTensor, "__reduce_ex__", without)


def _saves_shards(patches: Patches, told: Callable[[], None]) -> None:
    """Patch `torch.distributed.checkpoint` to write nothing, because its tensors are fake."""

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


def _loads(torch: Any, patches: Patches, overlay: Overlay) -> None:
    """Patch `torch.load`: files are read on the host, where content is real. Then each tensor moves
    to its device."""
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

        f = overlay.place(f)
        if isinstance(f, str | Path) and is_zipfile(f):
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


def _safetensors(torch: Any, patches: Patches, overlay: Overlay) -> None:
    """Patch safetensors, which reads the memory of tensors in Rust. Tensors of the device have no
    memory, so `torch.save` saves them."""
    from torch._subclasses.fake_tensor import FakeTensor

    def changed(module: ModuleType) -> None:
        save_file, load_file = module.save_file, module.load_file

        def save(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> None:
            if any(isinstance(tensor, FakeTensor) for tensor in tensors.values()):
                torch.save({**tensors}, filename)
            else:
                save_file(tensors, overlay.written(filename), *args, **kwargs)

        def load(filename: Any, device: Any = "cpu", *args: Any, **kwargs: Any) -> Any:
            place = overlay.place(filename)
            if is_zipfile(place):
                return torch.load(filename, map_location=device)
            return load_file(place, device, *args, **kwargs)

        patches.set(module, "save_file", save)
        patches.set(module, "load_file", load)

    patches.when_imported("safetensors.torch", changed)
