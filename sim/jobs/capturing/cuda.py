"""`torch.cuda` as a script finds it on a machine with GPUs: answers, streams, events."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

from sim.config.errors import InputError
from sim.hardware.device import Device
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches


class Streams:
    """The streams of a process; the last stream in the `stack` is the current stream. `line` gives
    the number of the script's present line."""

    def __init__(self, device: Any, log: Log) -> None:
        self.line: Callable[[], int] = lambda: -1
        self.device, self.log, self.serial = device, log, count(1)
        # torch.cuda.Stream and torch.cuda.Event of this process: classes that scripts instantiate
        self.stream = type("Stream", (FakeStream,), {"streams": self})
        self.event = type("Event", (FakeEvent,), {"streams": self})
        self.stack: list[Any] = [self.stream()]
        log.stream(self.current)

    @property
    def current(self) -> int:
        """The identity of the current stream."""
        return int(self.stack[-1].stream_id)

    def sync(self) -> None:
        """Record that the host waits for the current stream."""
        self.log.add("sync", self.current, line=self.line())

    def sync_all(self) -> None:
        """Record that the host waits for the device."""
        self.log.sync_all(self.current, self.line())


class FakeEvent:
    """A stand-in for torch.cuda.Event; `id` is the number of its last record."""

    streams: Streams

    def __init__(self, *_: Any, **__: Any) -> None:
        self.id, self.device = next(self.streams.serial), self.streams.device
        self.on = self.streams.current  # the stream of its last record

    def synchronize(self) -> None:
        self.streams.log.add("sync", self.on, mark=self.id, line=self.streams.line())

    def query(self) -> bool:
        return self.streams.log.passed(self.id)

    def elapsed_time(self, end: Any) -> float:
        return self.streams.log.milliseconds(self.id, end.id)

    def wait(self, stream: Any = None) -> None:
        (stream or self.streams.stack[-1]).wait_event(self)

    def record(self, stream: Any = None) -> "FakeEvent":
        self.id = next(self.streams.serial)
        chosen = stream or self.streams.stack[-1]
        self.on = chosen.stream_id
        self.streams.log.add("record", chosen.stream_id, mark=self.id)
        return self


class FakeStream:
    """A stand-in for torch.cuda.Stream."""

    streams: Streams
    device_index, device_type, priority = 0, 1, 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.stream_id = self.cuda_stream = next(self.streams.serial)
        self.device = self.streams.device

    def record_event(self, event: Any = None) -> Any:
        return (event or self.streams.event()).record(self)

    def wait_event(self, event: Any) -> None:
        self.streams.log.add("wait", self.stream_id, mark=event.id)

    def wait_stream(self, other: Any) -> None:
        self.wait_event(other.record_event())

    def synchronize(self) -> None:
        self.streams.log.add("sync", self.stream_id, line=self.streams.line())

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> "FakeStream":
        self.streams.stack.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        self.streams.stack.pop()


_NOTHING = (
    *("init", "_lazy_init", "manual_seed", "manual_seed_all", "set_rng_state", "set_rng_state_all"),
    *("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_accumulated_memory_stats"),
    *("ipc_collect", "_sleep", "empty_host_cache"),
)


def install(
    torch: Any, patches: Patches, streams: Streams, device: Device, *, gpus: int, index: int
) -> None:
    """Patch `torch.cuda` to answer for GPU `index` of the `gpus` of a node.

    The script sees this `device` and chooses accordingly. The cluster on which a recording is
    played may have other devices.
    """
    answers = dict.fromkeys(_NOTHING) | _answers(torch, device, gpus)
    for name, answer in answers.items():
        for owner in (*_owners(torch), torch.cuda.random):  # their functions call each other
            if hasattr(owner, name):
                patches.set(owner, name, partial(_answer, answer))
    wide = _capability(device) >= (8, 0)

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return including_emulation or wide

    def record_stream(tensor: Any, s: Any) -> None:
        streams.log.used(tensor.untyped_storage(), s.stream_id)

    patches.set(torch.cuda, "is_bf16_supported", is_bf16_supported)
    torch._C._accelerator_setDeviceIndex(index)
    patches.set(torch.cuda, "current_device", lambda: index)
    patches.set(torch.cuda, "set_device", lambda device: None)
    patches.set(torch.cuda, "synchronize", lambda *_, **__: streams.sync_all())
    for owner in _owners(torch):
        patches.set(owner, "empty_cache", streams.log.emptied)
    patches.set(torch.cuda, "Stream", streams.stream)
    patches.set(torch.cuda, "Event", streams.event)
    patches.set(torch.cuda, "stream", lambda stream: stream or nullcontext())
    for owner in (torch.cuda, torch.accelerator):
        patches.set(owner, "set_stream", lambda stream: streams.stack.append(stream))
        patches.set(owner, "current_stream", lambda *_, **__: streams.stack[-1])
    patches.set(torch.cuda, "default_stream", lambda *_, **__: streams.stack[0])
    patches.set(torch.Tensor, "record_stream", record_stream)
    patches.set(torch, "Generator", _generators(torch))
    loader = torch.utils.data.DataLoader
    patches.set(loader, "pin_memory", property(lambda _: False, lambda *_: None))
    _profiling(torch, patches)
    _runtime(torch, patches, streams, gpus, index)
    patches.set(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    patches.set(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
    patches.set(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)


def _owners(torch: Any) -> tuple[Any, ...]:
    """The modules with functions on memory and devices."""
    accelerator = torch.accelerator
    return torch.cuda, torch.cuda.memory, accelerator, getattr(accelerator, "memory", accelerator)


def _profiling(torch: Any, patches: Patches) -> None:
    """Patch NVTX and CUDA's runtime, which scripts call for profiles."""
    ranges = count()
    nvtx = SimpleNamespace(
        rangePushA=lambda _: 0,
        rangePop=lambda: 0,
        rangeStartA=lambda _: next(ranges),
        rangeEnd=lambda _: None,
        markA=lambda _: None,
    )
    patches.set(torch.cuda.nvtx, "_nvtx", nvtx)
    runtime = SimpleNamespace(
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaError=SimpleNamespace(success=0),
    )
    patches.set(torch.cuda, "_cudart", runtime)


# Functions of torch's CUDA build that torch's own Python calls. `_SETS` has the beginnings of the
# names of functions that return None, `_FOUND` the answers of other functions.
_SETS = (
    *("set", "reset", "record", "ipc", "sleep", "init", "change", "tunableop", "synchronize"),
    *("emptyCache", "cudaCachingAllocator"),
)
_FOUND = {
    "getArchFlags": "sm_90",
    "getMemoryFraction": 1.0,
    "getAllocatorBackend": "native",
    "get_sync_debug_mode": 0,
    "get_cudnn_benchmark_limit": 10,
    "getCurrentBlasHandle": 0,
    "getCurrentSolverHandle": 0,
    "memoryStats": {},
    "canDeviceAccessPeer": True,
    "cudaCachingAllocator_is_enabled": True,
    "isHistoryEnabled": False,
    "memorySnapshot": {"segments": [], "device_traces": [], "external_annotations": []},
    "hostMemoryStats": {},
}
# Functions that ask the driver about the device, which counts as idle.
_IDLE = (
    *("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"),
    "device_memory_used",
)


def _runtime(torch: Any, patches: Patches, streams: Streams, gpus: int, index: int) -> None:
    """Patch the functions of torch's CUDA build, even if the installed build lacks them. Any other
    function raises `AttributeError` with the function's name."""
    answers = {"getDevice": index, "getDeviceCount": gpus, **_FOUND}

    def missing(name: str) -> Any:
        short = name.removeprefix("_cuda_")
        if name.startswith("_cuda_") and (short in answers or short.startswith(_SETS)):
            return partial(_answer, answers.get(short))
        fault = f"the simulated GPU has no torch._C.{name}"
        raise AttributeError(fault, name=name, obj=torch._C)

    patches.set(torch._C, "__getattr__", missing)
    for name in [name for name in dir(torch._C) if name.startswith("_cuda_")]:
        with suppress(AttributeError):
            patches.set(torch._C, name, missing(name))
    for name in _IDLE:
        patches.set(torch.cuda, name, partial(_answer, 0))
    patches.set(torch.cuda, "list_gpu_processes", partial(_answer, "no processes are running"))
    kind, pools = torch.Generator, count(1)
    patches.set(torch.cuda, "default_generators", tuple(kind(f"cuda:{n}") for n in range(gpus)))
    patches.set(torch.cuda, "graph_pool_handle", lambda: (0, next(pools)))
    patches.set(torch.version, "cuda", torch.version.cuda or "12.8")
    patches.set(torch._C, "_accelerator_synchronizeDevice", lambda _: streams.sync_all())


def _generators(torch: Any) -> Any:
    """A class of generators, which replaces the device's generators by the host's. No numbers are
    drawn on the device."""
    usual = torch.Generator

    class Kind(type(usual)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, usual)

    class Generator(usual, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            generator = usual.__new__(cls)
            generator.place = torch.device(device)
            return generator

        @property
        def device(self) -> Any:
            return self.place

    return Generator


def _answer(answer: Any, *_: Any, **__: Any) -> Any:
    return answer


# Compute capabilities by generation, and of other GPUs by the beginnings of their names.
_CAPABILITIES = {
    "volta": (7, 0),
    "ampere": (8, 0),
    "ada": (8, 9),
    "hopper": (9, 0),
    "blackwell": (10, 0),
}
_OTHERS = {"A40": (8, 6), "B300": (10, 3), "GB300": (10, 3)}


def _capability(device: Device) -> tuple[int, int]:
    """The compute capability of a device. Raises `InputError` for a device without CUDA."""
    known = next((found for start, found in _OTHERS.items() if device.name.startswith(start)), None)
    found = known or _CAPABILITIES.get(device.generation)
    if found is None:
        raise InputError(
            "--gpu", f"{device.name} is not a CUDA device", "name a GPU such as h200-sxm"
        )
    return found


def _answers(torch: Any, device: Device, gpus: int) -> dict[str, Any]:
    memory = int(device.memory)
    capability = _capability(device)
    gpu = SimpleNamespace(
        name=f"NVIDIA {device.name}",
        major=capability[0],
        minor=capability[1],
        total_memory=memory,
        multi_processor_count=device.sms,
        L2_cache_size=int(device.l2),
    )
    random = torch.empty(16, dtype=torch.uint8)
    return {
        "is_available": True,
        "is_initialized": True,
        "device_count": gpus,
        "get_device_capability": capability,
        "get_device_name": gpu.name,
        "get_device_properties": gpu,
        "mem_get_info": (memory, memory),
        "get_memory_info": (memory, memory),
        "is_current_stream_capturing": False,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "memory_stats": defaultdict(int),
        "memory_summary": "",
        "get_rng_state": random,
        "get_rng_state_all": [random] * gpus,
    }
