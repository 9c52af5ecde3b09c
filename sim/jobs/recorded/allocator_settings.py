"""Read settings of torch's caching allocator, written as in PYTORCH_ALLOC_CONF."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf

from sim.config.dataclass import dataclass
from sim.config.errors import InputError

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # torch up to 2.8 reads the second
MIB = 1 << 20
# These options change the moments at which memory is pinned, freed or requested, but not the bytes
# that are reserved. Garbage is collected early only if a process may use just a part of the memory.
_NO_EFFECT = (
    *("garbage_collection_threshold", "release_lock_on_cudamalloc", "throw_on_cudamalloc_oom"),
    *("pinned_use_cuda_host_register", "pinned_num_register_threads"),
    *("pinned_use_background_threads", "pinned_reserve_segment_size_mb"),
    "graph_capture_record_stream_reuse",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorSettings:
    """Options of the allocator, named as in torch; sizes are in bytes. Blocks of `max_split_size`
    or more are not split. They serve only requests that are smaller by less than
    `max_non_split_rounding`. The range between two powers of two is divided into `divisions` steps,
    and requests are rounded up to the next step (0: to multiples of 512 bytes).

    Source: c10/core/AllocatorConfig.cpp, c10/cuda/CUDAAllocatorConfig.cpp.
    """

    expandable: bool = False
    large_segment: float = 20 * MIB
    max_split_size: float = inf
    max_non_split_rounding: float = 20 * MIB
    divisions: int = 0


def parsed(text: str, where: str) -> AllocatorSettings:
    """Read settings. Raises `InputError` for a text that torch refuses, or that names another
    allocator.

    >>> parsed("expandable_segments:True,max_split_size_mb:128", "here").max_split_size
    134217728
    """
    if "[" in text:
        fault = "sets divisions by size, which `sim` does not simulate"
        raise InputError(where, fault, "write one number for all sizes: roundup_power2_divisions:4")
    settings = AllocatorSettings()
    for name, value in _pairs(text, where):
        if name in _NO_EFFECT or (name, value) == ("backend", "native"):
            continue
        if name not in _OPTIONS:
            fault = f"torch's caching allocator has no option {name!r}"
            if name == "backend":
                fault = f"the allocator {value!r} is not simulated"
            raise InputError.unknown(where, fault, name, [*_OPTIONS, *_NO_EFFECT])
        field, read, said = _OPTIONS[name]
        try:
            settings = replace(settings, **{field: read(value)})  # type: ignore[arg-type]
        except ValueError:
            raise InputError(where, f"{name} = {value!r}", f"write {said}") from None
    if settings.max_split_size < settings.large_segment:
        least = settings.large_segment // MIB
        raise InputError(where, "max_split_size_mb is below a segment", f"write {least} or more")
    return settings


def _pairs(text: str, where: str) -> Iterator[tuple[str, str]]:
    for option in filter(None, text.replace(" ", "").split(",")):
        name, _, value = option.partition(":")
        if not value:
            raise InputError(where, f"{option!r} has no value", "write name:value, ...")
        yield name, value


def _truth(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError
    return text == "True"


def _mebibytes(text: str) -> int:
    if int(text) < 20:
        raise ValueError
    return int(text) * MIB


def _power_of_two(text: str) -> int:
    if int(text) < 1 or int(text) & (int(text) - 1):
        raise ValueError
    return int(text)


_OPTIONS: dict[str, tuple[str, Callable[[str], int | bool], str]] = {
    "expandable_segments": ("expandable", _truth, "True or False"),
    "large_segment_size_mb": ("large_segment", _mebibytes, "20 or more"),
    "max_split_size_mb": ("max_split_size", _mebibytes, "20 or more"),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _mebibytes, "20 or more"),
    "roundup_power2_divisions": ("divisions", _power_of_two, "a power of two"),
}
