"""Which whole numbers do fake tensors hold? Operators on tensors with known content are also
computed on the CPU.

Content is kept by storage, so views of a storage see one another's writes.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple
from weakref import ref

from sim.jobs.capturing.results import ResultCache
from sim.jobs.capturing.router import Router
from sim.jobs.capturing.values import healthy
from sim.jobs.recorded.kernels import UNSET

_MOST_SHADOWED = 1 << 27  # the largest storage (bytes) whose content is kept


class _Shadow:
    """The content of a fake storage: its `bytes`. `known` marks the bytes that are known (None: all
    bytes). If all elements are equal, their `value` replaces the bytes."""

    def __init__(
        self, storage: Any, gone: Callable[[Any], None], bytes: Any, known: Any, value: Any = None
    ) -> None:
        self.owner, self.size = ref(storage, gone), storage.nbytes()
        self.bytes, self.known, self.value = bytes, known, value


class ShadowMemory:
    """The known content of fake storages."""

    def __init__(self, torch: Any, unfaked: Any) -> None:
        self.torch, self.unfaked = torch, unfaked
        self._twins: dict[int, _Shadow] = {}

    def content(self, tensor: Any) -> Any:
        """A real tensor with a fake tensor's content; None if part of the content is unknown."""
        twin = self._twin(tensor.untyped_storage())
        if twin is None:
            return None
        with self.unfaked():
            if twin.value is not None:
                alike = twin.value.dtype == tensor.dtype
                return twin.value.expand(tensor.shape) if alike else None
            if twin.known is not None and not _bytes(twin.known, tensor).all():
                return None
            return _view(twin.bytes, tensor)

    def write(self, tensor: Any, content: Any) -> None:
        """Set the content of a fake tensor (None: unknown). The caller must not use `content`
        afterwards, unless `content` is a view of the tensor's own memory."""
        storage = tensor.untyped_storage()
        twin = self._twin(storage)
        if twin is not None and twin.value is not None:  # elements may now differ
            del self._twins[id(storage)]
            twin = None
        if twin is None and (content is None or storage.nbytes() > _MOST_SHADOWED):
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

    def fill(self, tensor: Any, value: Any) -> None:
        """Set all elements of a fake tensor, which has its own storage, to a real number."""
        storage = tensor.untyped_storage()
        self._twins[id(storage)] = _Shadow(storage, self._gone(id(storage)), None, None, value)

    def _gone(self, key: int) -> Callable[[Any], None]:
        def gone(_: Any) -> None:
            self._twins.pop(key, None)

        return gone

    def _made(self, storage: Any, tensor: Any, content: Any) -> _Shadow:
        key, torch = id(storage), self.torch
        if tensor.is_contiguous() and tensor.numel() * tensor.element_size() == storage.nbytes():
            flat = content.to(tensor.dtype).contiguous()
            if flat.untyped_storage().nbytes() != storage.nbytes():  # part of a larger storage
                flat = flat.clone(memory_format=torch.contiguous_format)
            bytes, known = flat.as_strided((flat.numel(),), (1,)).view(torch.uint8), None
        else:
            bytes, known = (
                torch.zeros(storage.nbytes(), dtype=kind) for kind in (torch.uint8, torch.bool)
            )
        twin = self._twins[key] = _Shadow(storage, self._gone(key), bytes, known)
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
    """The bytes of a storage that a tensor covers, each once."""
    width = tensor.element_size()
    steps = [
        (size if step else 1, step * width)
        for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    sizes, strides = zip(*steps, (width, 1), strict=True)
    return memory.as_strided(sizes, strides, tensor.storage_offset() * width)


# A result with more elements is not computed. The key says whether its numbers are floats.
_MOST = {False: 1 << 24, True: 1 << 20}
# Operators whose floats are computed if the result has at most `_FEW` elements (overflow flags).
_EXACT, _FEW = ("full", "scalar_tensor"), 64
# Operators whose results have equal elements, whatever their arguments.
_ALIKE = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), 0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), 1),
}
# Operators with which routers choose experts, and the place of their argument `dim`.
_CHOOSE = ("topk", "max", "argmax")
_ROUTES = {"aten.topk.default": 2, "aten.max.dim": 1, "aten.argmax.default": 1}
# Operators with indices. A boolean index selects as many elements as it has true elements.
_INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
# Operators whose results share the memory of their arguments, though not marked as views.
ALIASES = ("_unsafe_view", "lift_fresh", "_reshape_alias")
# Operators that write over their first argument without reading it.
_OVERWRITES = ("copy_", "fill_", "zero_")


class Ran(NamedTuple):
    """An operator that ran: its result `out`, the tensors among its arguments (`given`) and in its
    result (`made`), and its key in `ResultCache` (`asked`). `looked` tells whether the host had to
    read content of tensors."""

    out: Any
    given: list[Any]
    made: list[Any]
    asked: Any
    looked: bool


class TensorContents:
    """Runs operators on fake tensors, and keeps their known content. `results` remembers fake
    results; `router` chooses the experts of tokens."""

    def __init__(self, torch: Any, router: Router, results: ResultCache) -> None:
        self.torch, self.router, self.results = torch, router, results
        fake = import_module("torch._subclasses.fake_tensor")
        self.fake, self.unfaked = fake.FakeTensor, fake.unset_fake_temporarily
        self.stored = ShadowMemory(torch, self.unfaked)
        self.map = torch.utils._pytree.tree_map
        dynamic = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
        # Whether the shape or the value of an operator's result may depend on content.
        self._depends = cache(lambda func: not dynamic.isdisjoint(func.tags))
        # Whether an operator changes its arguments.
        self._changes = cache(lambda func: bool(func._schema.is_mutable))

    def of(self, tensor: Any) -> Any:
        """The content of a tensor; None if it is unknown."""
        if isinstance(tensor, self.fake):
            return self.stored.content(tensor)
        return tensor if not tensor.dim() or not tensor.dtype.is_floating_point else None

    def keep(self, tensor: Any, content: Any) -> None:
        """Set the content of a fake tensor (None: unknown)."""
        if isinstance(tensor, self.fake):
            self.stored.write(tensor, content)

    def tensors(self, *trees: Any) -> list[Any]:
        """The tensors within lists and mappings."""
        found: list[Any] = []
        for tree in trees:
            if isinstance(tree, self.torch.Tensor):
                found.append(tree)
            elif isinstance(tree, list | tuple):
                if tree:
                    found += self.tensors(*tree)
            elif isinstance(tree, dict):
                found += self.tensors(*tree.values())
        return found

    def run(self, func: Any, name: str, args: Any, kwargs: Any) -> "Ran":
        """Run an operator, and keep the content of its results."""
        given: list[Any] = []
        asked, looked = self.results.asked(func, args, kwargs, given), False
        if name in _INDEXED:
            args, looked = self._numbered(args)
            asked = self.results.asked(func, args, kwargs, []) if looked else asked
        if self._depends(func):
            found = self._shaped(func, name, args, kwargs)
            if found is not None:
                found = self.map(self._faked, found)
                return Ran(found, given, self.tensors(found), None, name != "index")
        out = self.results.of(func, args, kwargs, asked)
        made = [out] if type(out) is self.fake else self.tensors(out)
        self._follow(func, name, given, args, kwargs, made)
        if name == "_to_copy" and out.device.type == "cpu" and self.of(out) is not None:
            out = self.of(out)  # on the host tensors are real
        return Ran(out, given, made, asked, looked)

    def _numbered(self, args: Any) -> tuple[Any, bool]:
        """Arguments with indices in place of known boolean masks, and whether there was a mask."""
        indices: list[Any] = []
        looked = False
        for index in args[1]:
            mask = self.of(index) if index is not None and index.dtype == self.torch.bool else None
            if mask is None:
                indices.append(index)
                continue
            with self.unfaked():
                found = mask.nonzero().unbind(1)
            indices += [self._faked(row) for row in found]
            looked = True
        return (args[0], indices, *args[2:]), looked

    def _shaped(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """The results of an operator whose shape depends on content; None if the content is
        unknown."""
        if name == "masked_select" and self.of(args[0]) is None:
            mask = self.of(args[1])
            if mask is None:
                return None
            with self.unfaked():
                whole = self.torch.broadcast_shapes(args[0].shape, mask.shape)
                count = int(mask.expand(whole).sum())
                return self.torch.empty(count, dtype=args[0].dtype, device="meta")
        return self._computed(func, name, args, kwargs)

    def _faked(self, real: Any) -> Any:
        """A fake tensor on the device with the shape and the content of a real tensor."""
        if not isinstance(real, self.torch.Tensor):
            return real
        fake = self.torch.empty(real.shape, dtype=real.dtype, device="cuda")
        self.keep(fake, None if real.is_meta else real)
        return fake

    def _follow(
        self, func: Any, name: str, given: list[Any], args: Any, kwargs: Any, results: list[Any]
    ) -> None:
        """Keep the content of an operator's results, or of the arguments that the operator
        changes."""
        if (func.is_view or name in ALIASES) and all(
            isinstance(tensor, self.fake) for tensor in given
        ):
            return
        changes = self._changes(func)
        if changes and not results:  # lists that are changed in place
            results = self.tensors(args)
        results = [tensor for tensor in results if isinstance(tensor, self.fake)]
        if results and (self._healthy(name, args, results) or self._alike(name, results[0])):
            return
        small = (tensor.numel() <= _MOST[tensor.dtype.is_floating_point] for tensor in results)
        if not results or not (changes or any(small)):
            return
        if name in _CHOOSE and str(func) in _ROUTES and self.of(args[0]) is None:
            self._route(str(func), args, results)
            return
        whole = not results[0].dtype.is_floating_point
        fresh = whole and name in _OVERWRITES
        known = all(self.of(tensor) is not None for tensor in (given[1:] if fresh else given))
        if fresh and known:
            self.keep(args[0], self._blank(args[0]))
        exact = given or whole or (name in _EXACT and results[0].numel() <= _FEW)
        found = self._computed(func, name, args, kwargs) if known and exact else None
        if found == ():  # the operator has no result, only changes
            return
        contents = self.tensors(found)
        if len(contents) != len(results):
            contents = [None] * len(results)
        for result, content in zip(results, contents, strict=True):
            self.keep(result, content)

    def _healthy(self, name: str, args: Any, results: list[Any]) -> bool:
        """Whether the results follow from the assumption that all numbers are finite. If so, their
        content is kept."""
        if name == "_amp_foreach_non_finite_check_and_unscale_":
            return True  # only gradients change, not the flag of overflow
        answer = healthy(name, args, self.of)
        if answer is None or len(results) != 1 or results[0].dtype != self.torch.bool:
            return False
        with self.unfaked():
            content = self.torch.full(results[0].shape, answer)
        self.keep(results[0], content)
        return True

    def _alike(self, name: str, made: Any) -> bool:
        """Whether an operator makes equal elements. If so, their content is kept: many floats as a
        single number, other results element by element, as scripts may change elements."""
        if name not in _ALIKE:
            return False
        whole = not made.dtype.is_floating_point
        if not whole and made.numel() > _FEW:
            with self.unfaked():
                value = self.torch.full((), _ALIKE[name], dtype=made.dtype)
            self.stored.fill(made, value)
        elif made.numel() <= _MOST[not whole]:
            with self.unfaked():
                self.keep(made, self.torch.full(made.shape, _ALIKE[name], dtype=made.dtype))
        return True

    def _blank(self, tensor: Any) -> Any:
        with self.unfaked():
            return self.torch.zeros(tensor.shape, dtype=tensor.dtype)

    def _computed(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """The result of an operator, computed on the CPU; None if an argument's content is unknown
        or the CPU lacks the operator."""
        if any(self.of(tensor) is None for tensor in self.tensors(args, kwargs)):
            return None
        args, kwargs = self.map(self._real, args), self.map(self._real, kwargs)
        if name in UNSET:  # unwritten memory counts as zeros, so that captures are reproducible
            with self.unfaked():
                return func(*args, **kwargs).zero_()
        with self.unfaked():
            if name == "histc":  # the CPU has it for floats only
                dtype, args = args[0].dtype, (args[0].float(), *args[1:])
            try:
                found = func(*args, **kwargs)
            except (NotImplementedError, RuntimeError):  # the CPU has no such kernel
                return None
            if name == "histc":
                return found.to(dtype)
            return () if found is None else found

    def _real(self, value: Any) -> Any:
        if isinstance(value, self.torch.device):
            return self.torch.device("cpu")
        return self.of(value) if isinstance(value, self.torch.Tensor) else value

    def _route(self, name: str, args: Any, results: list[Any]) -> None:
        """Let the router decide which scores are the largest, and keep their indices."""
        place = _ROUTES[name]
        dim = args[place] if len(args) > place else -1
        if dim is None:  # the choice is among the whole tensor
            return
        k = args[1] if place == 2 else 1
        with self.unfaked():
            chosen = self.router.chosen(args[0].shape, dim, k)
            if chosen is not None:
                self.keep(results[-1], chosen.reshape(results[-1].shape).clone())
