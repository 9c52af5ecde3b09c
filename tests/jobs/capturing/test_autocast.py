"""Autocast casts in a capture as it casts CUDA's tensors."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from sim.jobs.capturing.capture import capture
from sim.jobs.capturing.device import pretend
from sim.jobs.capturing.patches import Patches
from tests.jobs.capturing.test_device import within

HALF = torch.float16
Call = Callable[[], Any]


@contextmanager
def autocast() -> Iterator[None]:
    """`torch.autocast`, which without a GPU does nothing."""
    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_dtype("cuda", HALF)
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", before)


def listed() -> Iterator[tuple[str, Call]]:
    """Calls of the operators with which torch tests its lists of autocast."""
    lists = import_module("torch.testing._internal.autocast_test_lists").AutocastTestLists("cuda")
    for kind, operators in vars(lists).items():
        for number, (name, args, *more) in enumerate(operators):
            named = next((each for each in more if isinstance(each, dict)), {})
            owners = (args[0],) if kind.startswith("methods") else (torch, functional, torch._C._nn)
            given = args[1:] if kind.startswith("methods") else args
            for place, owner in enumerate(owners):
                if hasattr(owner, name):
                    call = partial(getattr(owner, name), *given, **named)
                    yield f"{kind}.{name} {number} {place}", call


def others() -> Iterator[tuple[str, Call]]:
    """Calls of operators in autocast's lists that torch does not test."""
    wide, half = (torch.ones(2, 4, 8, 8, device="cuda", dtype=kind) for kind in (None, HALF))
    for dtype in (None, torch.bool, HALF, torch.float64):
        mask = None if dtype is None else torch.ones(8, 8, device="cuda", dtype=dtype)
        attention = functional.scaled_dot_product_attention
        for number, given in enumerate(((wide, wide, half), (half, half, wide), (wide,) * 3)):
            yield f"attention {dtype} {number}", partial(attention, *given, attn_mask=mask)
    double = wide.double()
    yield "attention of doubles", partial(functional.scaled_dot_product_attention, *(double,) * 3)
    images = {"linear": half[0], "bilinear": half, "bicubic": half, "trilinear": half[None]}
    for mode, image in images.items():
        yield mode, partial(functional.interpolate, image, scale_factor=2, mode=mode)
    for name in ("nearest", "nearest-exact"):
        yield name, partial(functional.interpolate, half, scale_factor=2, mode=name)
    for mode in ("bilinear", "bicubic"):
        antialiased: Any = {"scale_factor": 2, "mode": mode, "antialias": True}
        yield f"{mode}, antialiased", partial(functional.interpolate, half, **antialiased)
    yield "huber_loss", partial(functional.huber_loss, half, half)
    yield "layer_norm", partial(functional.layer_norm, half, (8,))
    yield "vecdot", partial(torch.linalg.vecdot, wide, half)
    yield "multi_dot", partial(torch.linalg.multi_dot, [wide[0, 0], wide[0, 1], wide[1, 1]])
    for name in ("vector_norm", "matrix_norm"):
        yield name, partial(getattr(torch.linalg, name), half)


def dtypes() -> dict[str, Any]:
    """The dtypes of the results of all calls, by call; those that fail have the error's."""
    found = {}
    for calls in (listed, others):
        for name, call in calls():
            with warnings.catch_warnings(action="ignore"), autocast():
                try:
                    made = torch.utils._pytree.tree_leaves(call())
                except Exception as error:
                    made = [SimpleNamespace(dtype=type(error))]
            found[name] = [each.dtype for each in made if hasattr(each, "dtype")]
    return found


def test_every_listed_operator_casts_as_for_tensors_of_cuda(monkeypatch: Any) -> None:
    stub = SimpleNamespace(TEST_WITH_ROCM=False, TestCase=object)  # its imports may be missing
    monkeypatch.setitem(sys.modules, "torch.testing._internal.common_utils", stub)
    patches = Patches()
    pretend(torch, patches)
    with FakeTensorMode():
        plain = dtypes()
    patches.restore()
    (captured,) = within(dtypes, world=1)
    runs = {name: made for name, made in plain.items() if all(map(_told, made))}
    assert len(runs) > 150
    assert {name: captured[name] for name in runs} == runs


def _told(dtype: Any) -> bool:
    return isinstance(dtype, torch.dtype)


def attention_of(backend: SDPBackend) -> list[tuple[str, set[str]]]:
    """Which operators run attention of queries and keys in fp32, and values in fp16, under
    autocast, with the dtypes of their inputs."""

    def train() -> None:
        model = torch.nn.Linear(64, 64).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            x = model(torch.ones(2, 4, 128, 64, device="cuda"))
            with torch.autocast("cuda", dtype=HALF), sdpa_kernel(backend):
                out: Any = functional.scaled_dot_product_attention(x, x, x.half(), is_causal=True)
            out.float().mean().backward()
            optimizer.step()

    own = capture(train, world=1)[0]
    assert own.notes == ()
    return [(each.name, {kind.dtype for kind in each.inputs}) for each in own.operators]


def test_attention_of_unlike_dtypes_is_flash_attention_under_autocast() -> None:
    found = dict(attention_of(SDPBackend.FLASH_ATTENTION))
    assert found["aten._scaled_dot_product_flash_attention"] == {"float16"}


def test_composed_attention_computes_in_fp32_below_autocast() -> None:
    inside = ("aten.bmm", "aten._safe_softmax")  # attention.cpp: _scaled_dot_product_attention_math
    found = [each for each in attention_of(SDPBackend.MATH) if each[0] in inside]
    assert {name for name, _ in found} == {*inside}
    assert all(kinds == {"float32"} for _, kinds in found)


def test_attention_of_unlike_dtypes_fails_without_autocast() -> None:
    def ask() -> None:
        wide, half = (torch.ones(1, 1, 8, 8, device="cuda", dtype=kind) for kind in (None, HALF))
        with pytest.raises(RuntimeError, match="unlike dtypes"):
            functional.scaled_dot_product_attention(wide, wide, half)

    assert within(ask, world=1) == [None]
