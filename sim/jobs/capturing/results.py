"""What do operators return on fake tensors? A result is remembered for calls with equal arguments.

A fake tensor's mode computes shapes by a kernel, or finds them in a cache. The cache's keys allow
for symbols, sparse layouts and more, so an operator takes 0.2 ms (torch/_subclasses/fake_tensor.py,
`_cached_dispatch_impl`). A training loop asks the same few hundred questions again and again, so
here a known answer is looked up in a table.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

_UNTOLD, _VIEW = object(), object()  # answers: unknown; the result is a view
# Operators whose results share memory with an argument, though torch does not call them views.
_SHARES = ("_unsafe_view",)


class _Fresh:
    """A result in new memory."""

    __slots__ = ("dtype", "shape", "state", "stride")

    def __init__(self, tensor: Any, state: dict[str, Any]) -> None:
        self.shape, self.stride, self.dtype = tensor.shape, tensor.stride(), tensor.dtype
        self.state = state


class _Plain:
    """A result that is no tensor."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class ResultCache:
    """Remembers the results of operators of `aten`: fresh tensors, views of the first argument, or
    arguments themselves."""

    def __init__(self, torch: Any, mode: Any) -> None:
        self.torch, self.mode = torch, mode
        module = import_module("torch._subclasses.fake_tensor")
        self.fake, self.in_kernel = module.FakeTensor, module.in_kernel_invocation_manager
        core = torch._C
        unsafe = mode._allow_unsafe_data_ptr_access
        self._guard: Any = (
            core._set_warn_deprecated_on_mutable_data_ptr
            if unsafe
            else core._set_throw_on_mutable_data_ptr
        )
        self._answers: dict[Any, Any] = {}
        self._states: dict[Any, dict[str, Any]] = {}  # attributes of a new fake tensor, by device
        plain = (int, float, bool, complex, str, type(None), torch.dtype, torch.device)
        self._plain = {*plain, torch.layout, torch.memory_format}

    def asked(self, func: Any, args: Any, kwargs: Any, given: list[Any]) -> Any:
        """A key that is equal for calls with equal shapes, strides and numbers; None if no key
        tells such calls apart. All tensors among the arguments are added to `given`."""
        key: list[Any] = [id(func), self.torch.get_default_dtype()]
        told = self._told(key, args, given)
        for name, value in kwargs.items():
            key.append(name)
            told = self._told(key, (value,), given) and told
        return tuple(key) if told else None

    def _told(self, key: list[Any], values: Iterable[Any], given: list[Any]) -> bool:
        told = True
        for value in values:
            kind = type(value)
            if kind is self.fake:
                given.append(value)
                told = told and value.fake_mode is self.mode and value.constant is None
                key += (value.dtype, value.shape, value.stride(), value.fake_device)
            elif kind in self._plain:
                key += (kind, value)  # the type, since 1 equals 1.0 and True
            elif isinstance(value, list | tuple):
                key += (list, len(value))
                told = self._told(key, value, given) and told
            else:
                told = False
                if isinstance(value, self.torch.Tensor):
                    given.append(value)
        return told

    def of(self, func: Any, args: Any, kwargs: Any, asked: Any) -> Any:
        """The result of an operator; `asked` is its key."""
        answer = self._answers.get(asked, _UNTOLD)
        if answer is not _UNTOLD:
            return self._given(answer, func, args, kwargs)
        out = func(*args, **kwargs)
        if asked is not None and func.namespace == "aten":
            given: list[Any] = []
            again = self.asked(func, args, kwargs, given)
            if again == asked and self._lasts(func, given):  # the operator has changed no shape
                answer = self._answer(func, out, args, kwargs, given)
                if answer is not _UNTOLD:
                    self._answers[asked] = answer
        return out

    def _lasts(self, func: Any, given: list[Any]) -> bool:
        """Whether shapes alone determine an operator's result."""
        tags, masks = self.torch.Tag, (self.torch.bool, self.torch.uint8)
        if func._overloadpacket.__name__ == "index":
            return not any(tensor.dtype in masks for tensor in given[1:])
        special = {tags.dynamic_output_shape, tags.data_dependent_output, tags.inplace_view}
        return not special & {*func.tags}

    def _answer(self, func: Any, out: Any, args: Any, kwargs: Any, given: list[Any]) -> Any:
        """An operator's results in the form in which they are remembered; `_UNTOLD` if they cannot
        be remembered."""
        several = isinstance(out, list | tuple)
        results = list(out) if several else [out]
        if func.is_view or func._overloadpacket.__name__ in _SHARES:
            return _VIEW if self._same([*args[:1], *results]) else _UNTOLD
        places = {id(value): place for place, value in [*kwargs.items(), *enumerate(args)]}
        taken = {id(value.untyped_storage()) for value in given}
        found: list[Any] = []
        for value in results:
            if value is None or type(value) in (int, bool):
                found.append(_Plain(value))
            elif id(value) in places:
                found.append(places[id(value)])
            elif type(value) is self.fake and self._fresh(value, taken):
                taken.add(id(value.untyped_storage()))
                found.append(_Fresh(value, self._state(value.fake_device)))
            else:
                return _UNTOLD
        return (type(out), found) if several else found[0]

    def _same(self, several: list[Any]) -> bool:
        """Whether an argument and results lie in the same memory."""
        fake = len(several) > 1 and all(type(tensor) is self.fake for tensor in several)
        return fake and len({id(tensor.untyped_storage()) for tensor in several}) == 1

    def _fresh(self, tensor: Any, taken: set[int]) -> bool:
        """Whether a result exactly fills memory that no other tensor uses."""
        ends = (
            sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        )
        plain = tensor.layout == self.torch.strided and not (tensor.is_conj() or tensor.is_neg())
        storage = tensor.untyped_storage()
        full = storage.nbytes() == tensor.element_size() * (ends if tensor.numel() else 0)
        return plain and full and tensor.constant is None and id(storage) not in taken

    def _state(self, device: Any) -> dict[str, Any]:
        if device not in self._states:
            with self.in_kernel(self.mode):
                empty = self.torch.empty(0, device="meta")
            self._states[device] = dict(self.fake(self.mode, empty, device).__dict__)
        return self._states[device]

    def _given(self, answer: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if answer is _VIEW:
            return self.viewed(func, args, kwargs)
        kind = type(answer)
        if kind is tuple:
            made, parts = answer
            return made([self._given(part, func, args, kwargs) for part in parts])
        if kind is _Plain:
            return answer.value
        if kind is not _Fresh:
            return args[answer] if kind is int else kwargs[answer]
        return self._filled(answer.shape, answer.stride, answer.dtype, answer.state)

    def fresh(self, shape: Any, stride: Any, dtype: Any, device: Any) -> Any:
        """A fake tensor in new memory."""
        return self._filled(shape, stride, dtype, self._state(device))

    def _filled(self, shape: Any, stride: Any, dtype: Any, state: dict[str, Any]) -> Any:
        with self.torch._C._DisableTorchDispatch():
            empty = self.torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            return self._faked(empty, state)

    def viewed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operator that makes views of a fake tensor, its first
        argument."""
        with self.in_kernel(self.mode):
            out = func(*args, **kwargs)
        state = self._state(args[0].fake_device)
        with self.torch._C._DisableTorchDispatch():
            if isinstance(out, list | tuple):
                return type(out)([self._faked(tensor, state) for tensor in out])
            return self._faked(out, state)

    def _faked(self, meta: Any, state: dict[str, Any]) -> Any:
        """A fake tensor as `FakeTensor.__new__` makes it."""
        fake = self.torch.Tensor._make_subclass(
            self.fake,
            meta,
            False,
            dispatch_device=True,
            device_for_backend_keys=state.get("_fake_device") or state["fake_device"],  # torch 2.11
        )
        self._guard(fake)  # against reads of its content
        fake.__dict__.update(state)
        return fake
