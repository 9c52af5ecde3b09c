"""A fake CUDA device for fake tensors: c10's own no-op guard, and replaced CUDA hooks.

Fake tensors have shapes and no memory. Yet autograd and the dispatcher ask for the device's guard
and for CUDA's hooks. c10 has a guard without a device (c10/core/impl/FakeGuardImpl.h), which
`_ensureCUDADeviceGuardSet` registers. Three virtual functions of at::CUDAHooksInterface
(aten/src/ATen/detail/CUDAHooksInterface.h: isBuilt, isAvailable, hasPrimaryContext) are replaced:
they answer that CUDA is available and has no context. The functions' places in the virtual table
are known for the versions from `OLDEST` to `NEWEST`; later versions are tried out first.
"""

import ctypes
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sim.config.errors import InputError
from sim.config.optional import needed
from sim.jobs.capturing.patches import Patches

_GUARDS, _CUDA = "_ZN3c104impl26device_guard_impl_registryE", 1  # DeviceType::CUDA
_DEVICE_TYPES = 22
_HOOKS, _SLOTS = "_ZN2at6detail12getCUDAHooksEv", 50
_IS_BUILT, _IS_AVAILABLE, _HAS_CONTEXT = 4, 5, 6
_TABLE_HEAD = 16  # bytes before a C++ object's functions: offset to top, type information
# Without these kernels autograd composes several operators where CUDA runs a single kernel.
_MISSING_KERNELS = ("silu_backward", "mish_backward", "_fused_rms_norm", "_fused_rms_norm_backward")

_kept: list[Any] = []  # objects to which C++ still has pointers


def pretend(torch: Any, patches: Patches) -> None:
    """Make torch see a CUDA device, as far as fake tensors need it, until patches are restored."""
    folder = Path(torch.__file__).parent / "lib"
    _guard(torch, ctypes.CDLL(str(folder / "libc10.so")), patches)
    _hooks(ctypes.CDLL(str(folder / "libtorch_cpu.so")), patches)
    if not torch.version.cuda:
        library = torch.library.Library("aten", "IMPL")
        for name in _MISSING_KERNELS:
            library.impl(name, _never, "CUDA")
        patches.also(library._destroy)


def _never(*_: object, **__: object) -> None:
    """A kernel that fake tensors never reach."""


def _function(result: Any, value: Any, *arguments: Any) -> int:
    """Return the address of a C function that always returns `value`."""
    _kept.append(ctypes.CFUNCTYPE(result, ctypes.c_void_p, *arguments)(lambda *_: value))
    return ctypes.cast(_kept[-1], ctypes.c_void_p).value or 0


def _guard(torch: Any, c10: Any, patches: Patches) -> None:
    """Register c10's guard without a device. A build without CUDA has no guard that c10 could
    replace, so a stand-in is registered first."""
    guards = (ctypes.c_void_p * _DEVICE_TYPES).in_dll(c10, _GUARDS)
    if not guards[_CUDA]:
        _kept.append((ctypes.c_void_p * 64)(*[_function(ctypes.c_int8, 0)] * 64))
        _kept.append((ctypes.c_void_p * 1)(ctypes.addressof(_kept[-1])))
        guards[_CUDA] = ctypes.addressof(_kept[-1])
        patches.also(lambda: guards.__setitem__(_CUDA, None))
    torch._C._ensureCUDADeviceGuardSet()


def _hooks(library: Any, patches: Patches) -> None:
    get = getattr(library, _HOOKS)
    get.restype = ctypes.c_void_p
    hooks = ctypes.cast(get(), ctypes.POINTER(ctypes.c_void_p))
    before = hooks[0] or 0
    old = ctypes.cast(before - _TABLE_HEAD, ctypes.POINTER(ctypes.c_void_p))
    table = (ctypes.c_void_p * _SLOTS)(*[old[i] for i in range(_SLOTS)])
    table[_IS_BUILT] = table[_IS_AVAILABLE] = _function(ctypes.c_bool, True)
    table[_HAS_CONTEXT] = _function(ctypes.c_bool, False, ctypes.c_int8)
    _kept.append(table)
    hooks[0] = ctypes.addressof(table) + _TABLE_HEAD
    patches.also(lambda: hooks.__setitem__(0, before))


OLDEST, NEWEST = (2, 11), (2, 13)  # tested versions


def release(version: str) -> tuple[int, int]:
    """
    >>> release("2.13.0+cpu")
    (2, 13)
    """
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def known_torch() -> Any:
    """Return torch. Raises `InputError` if torch is missing or too old, or if it is newer than all
    tested versions and its internals have changed."""
    torch = needed("torch", "sim capture", "capture")
    found = release(torch.__version__)
    if found < OLDEST:
        fault = f"needs internals that torch {torch.__version__} does not have"
        raise InputError("sim capture", fault, f"install torch {OLDEST[0]}.{OLDEST[1]} or later")
    if found > NEWEST:
        _look_inside(torch)
    return torch


def _look_inside(torch: Any) -> None:
    """Try the replaced hooks in another process, which may crash. Raises `InputError` if torch then
    sees no CUDA device, or still sees it after the patches are restored."""

    def asked(end: Any) -> None:
        patches = Patches()
        before = torch._C._get_accelerator().type
        pretend(torch, patches)
        there = torch._C._get_accelerator().type
        patches.restore()
        end.send((before, there, torch._C._get_accelerator().type))

    context: Any = get_context("fork")
    here, other = context.Pipe()
    process = context.Process(target=asked, args=(other,))
    process.start()
    other.close()
    try:
        before, there, after = here.recv()
    except EOFError:
        before, there, after = "", "a crash", ""
    process.join()
    if there != "cuda" or before != after:
        fault = f"depends on internals of torch that have changed in {torch.__version__} ({there})"
        remedy = f"install torch {NEWEST[0]}.{NEWEST[1]}, which is tested"
        raise InputError("sim capture", fault, remedy)
