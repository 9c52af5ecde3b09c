"""What `torch.cuda` and `torch.accelerator` answer where the GPU is not there."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from sim.config.errors import InputError
from sim.jobs.capturing import device
from sim.jobs.capturing.capture import capture

# Arguments by name; others are 0.
_GIVEN: dict[str, Callable[[], Any]] = {
    "stream": lambda: torch.cuda.Stream(),
    "event": lambda: torch.cuda.Event(),
    "new_state": lambda: torch.empty(16, dtype=torch.uint8),
    "new_states": lambda: [torch.empty(16, dtype=torch.uint8)],
    "msg": lambda: "a range",
    "filename": lambda: "snapshot",
    "devices": lambda: [0],
    "fraction": lambda: 0.5,
}
# What takes an allocator, a graph or a stream of C++, which no script of training makes.
_LEFT_OUT = (
    *("caching_allocator_alloc", "change_current_allocator", "get_stream_from_external"),
    *("make_graphed_callables", "signature", "cache", "wraps", "lru_cache", "dataclass"),
)


def functions(module: ModuleType) -> Iterator[FunctionType]:
    for name in dir(module):
        found = getattr(module, name)
        if isinstance(found, FunctionType) and name[0] != "_" and name not in _LEFT_OUT:
            yield found


def asked(function: FunctionType) -> str:
    """How a function fails."""
    needed = [
        _GIVEN.get(each.name, lambda: 0)()
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind <= each.POSITIONAL_OR_KEYWORD
    ]
    try:
        function(*needed)
    except Exception as error:
        return f"{function.__module__}.{function.__name__}: {type(error).__name__}: {error}"
    return ""


def within(ask: Callable[[], object], world: int = 8, **choices: Any) -> list[Any]:
    """What is found in a capture."""
    found = []

    def train() -> None:
        found.append(ask())
        raise KeyError

    with suppress(KeyError):
        capture(train, world=world, **choices)
    return found


@pytest.mark.parametrize(
    "module",
    [
        torch.cuda, torch.cuda.memory, torch.cuda.nvtx, torch.cuda.random, torch.cuda.profiler,
        torch.accelerator,
    ],
    ids=lambda module: module.__name__,
)  # fmt: skip
def test_every_function_answers(module: ModuleType, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (failed,) = within(lambda: [said for each in functions(module) if (said := asked(each))])
    assert failed == []


def test_what_is_not_known_is_missing_with_a_line() -> None:
    (said,) = within(lambda: asked(lambda: torch._C._cuda_somethingNew))  # type: ignore[attr-defined]
    assert "the simulated GPU has no torch._C._cuda_somethingNew" in said


def test_a_world_of_one_has_one_gpu() -> None:
    assert within(lambda: torch.cuda.device_count(), world=1) == [1]
    assert within(lambda: torch.cuda.device_count(), world=32) == [8]


def test_the_script_sees_the_gpu_that_is_chosen() -> None:
    def ask() -> object:
        seen = torch.cuda.get_device_properties(0)
        return torch.cuda.get_device_capability(), seen.multi_processor_count, seen.name

    assert within(ask) == [((9, 0), 132, "NVIDIA H100 80GB SXM")]
    assert within(ask, gpu="a100-40gb-sxm")[0][:2] == ((8, 0), 108)
    assert within(lambda: torch.cuda.is_bf16_supported(False), gpu="v100-32gb-sxm") == [False]
    with pytest.raises(InputError, match="is not a CUDA device"):
        within(ask, gpu="mi300x")


def test_products_of_inference_mode_are_products() -> None:
    def train() -> None:
        model = nn.Linear(16, 16).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            model(torch.ones(8, 16, device="cuda")).mean().backward()
            with torch.inference_mode():
                model(torch.ones(8, 16, device="cuda"))
            optimizer.step()

    (own,) = capture(train, world=1)
    names = [own.operators[event.operator].name for event in own.events if event.kind == "kernel"]
    assert names.count("aten.addmm") == 2
    assert "aten.linear" not in names


def test_a_newer_torch_is_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert device.known_torch() is torch  # its inside is as it was
    monkeypatch.setattr(device, "_IS_BUILT", 7)
    monkeypatch.setattr(device, "_IS_AVAILABLE", 7)
    with pytest.raises(InputError, match=r"have changed in 2\.99\.0"):
        device.known_torch()
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    with pytest.raises(InputError, match=r"install torch 2\.11 or later"):
        device.known_torch()


def test_weights_that_a_graph_has_saved_move_to_the_device() -> None:
    def train() -> None:
        model = nn.utils.weight_norm(nn.Linear(64, 1 << 17, bias=False)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(8, 64, device="cuda")).mean().backward()
            optimizer.step()

    own = capture(train, world=1)[0]
    assert own.parameters == 64 * (1 << 17) + (1 << 17)
    assert own.notes == ()
