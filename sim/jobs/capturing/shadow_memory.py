"""What is in the memory of fake tensors? Views of a storage see one another's writes."""

from collections.abc import Callable
from typing import Any
from weakref import ref

_MOST = 1 << 27  # bytes of a storage that is followed


class _Shadow:
    """Real memory beside a fake storage; `known` tells which of its bytes are right (None: all)."""

    def __init__(self, storage: Any, gone: Callable[[Any], None], bytes: Any, known: Any) -> None:
        self.owner, self.size = ref(storage, gone), storage.nbytes()
        self.bytes, self.known = bytes, known


class ShadowMemory:
    """Real memory of fake storages, as far as anybody knows it."""

    def __init__(self, torch: Any, unfaked: Any) -> None:
        self.torch, self.unfaked = torch, unfaked
        self._twins: dict[int, _Shadow] = {}

    def content(self, tensor: Any) -> Any:
        """A real tensor with the content of a fake tensor; None where part of it is unknown."""
        twin = self._twin(tensor.untyped_storage())
        if twin is None:
            return None
        with self.unfaked():
            if twin.known is not None and not _bytes(twin.known, tensor).all():
                return None
            return _view(twin.bytes, tensor)

    def write(self, tensor: Any, content: Any) -> None:
        """This is in a fake tensor from now on, in memory that is nobody else's or the tensor's
        already; None for what nobody knows."""
        storage = tensor.untyped_storage()
        twin = self._twin(storage)
        if twin is None and (content is None or storage.nbytes() > _MOST):
            return
        with self.unfaked():
            if twin is None:
                twin = self._made(storage, tensor, content)
            if twin.known is None and content is None:
                twin.known = self.torch.ones(twin.size, dtype=self.torch.bool)
            if twin.known is not None:
                _bytes(twin.known, tensor).fill_(content is not None)
            view = _view(twin.bytes, tensor)
            if content is not None and content.data_ptr() != view.data_ptr():
                view.copy_(content)

    def _made(self, storage: Any, tensor: Any, content: Any) -> _Shadow:
        key, torch = id(storage), self.torch

        def gone(_: Any) -> None:
            self._twins.pop(key, None)

        if tensor.is_contiguous() and tensor.numel() * tensor.element_size() == storage.nbytes():
            flat = content.to(tensor.dtype).contiguous()
            if flat.untyped_storage().nbytes() != storage.nbytes():  # a part of something larger
                flat = flat.clone(memory_format=torch.contiguous_format)
            bytes, known = flat.as_strided((flat.numel(),), (1,)).view(torch.uint8), None
        else:
            bytes, known = (
                torch.zeros(storage.nbytes(), dtype=kind) for kind in (torch.uint8, torch.bool)
            )
        twin = self._twins[key] = _Shadow(storage, gone, bytes, known)
        return twin

    def _twin(self, storage: Any) -> _Shadow | None:
        twin = self._twins.get(id(storage))
        there = twin is not None and twin.size == storage.nbytes() and twin.owner() is storage
        return twin if there else None


def _view(memory: Any, tensor: Any) -> Any:
    """The part of a storage's memory that a tensor covers."""
    width = tensor.element_size()
    whole = memory[: len(memory) // width * width].view(tensor.dtype)
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _bytes(memory: Any, tensor: Any) -> Any:
    """The bytes of this part; bytes that a tensor covers several times are there once."""
    width = tensor.element_size()
    steps = [
        (size if step else 1, step * width)
        for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    sizes, strides = zip(*steps, (width, 1), strict=True)
    return memory.as_strided(sizes, strides, tensor.storage_offset() * width)
