"""What is in fake tensors: of a storage, so that views and what is written in place agree."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.jobs.capturing.contents import TensorContents
from sim.jobs.capturing.results import ResultCache
from sim.jobs.capturing.router import Router
from sim.model.experts.routing import Routing
from tests.lazy import torch


def followed(fake: Any) -> Any:
    """Runs operators on fake tensors as a capture does."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Followed(TorchDispatchMode):
        contents = TensorContents(torch, Router(torch, Routing()), ResultCache(torch, fake))

        def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None):
            name = func._overloadpacket.__name__
            return self.contents.run(func, name, args, kwargs or {}).out

    return Followed()


VIEWS = {
    "rows": lambda x: x[1:3],
    "column": lambda x: x[..., -1:],
    "every other": lambda x: x[..., ::2],
    "turned": lambda x: x.mT if x.dim() > 1 else x,
    "flat": lambda x: x.flatten(),
    "the last": lambda x: x[-1:],
    "expanded": lambda x: x.unsqueeze(0),
}
CHANGES = {
    "add": lambda x: x.add_(3),
    "double": lambda x: x.mul_(2),
    "count": lambda x: x.copy_(torch.arange(x.numel()).reshape(x.shape)),
    "zero": lambda x: x.zero_(),
    "fill": lambda x: x.fill_(7),
    "squeeze": lambda x: x.unsqueeze_(0).add_(1),
}
FRESH = ("zero", "fill", "count")  # whatever was there before
STEPS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from([*VIEWS, *CHANGES, "unknown", "new"])),
    max_size=12,
)


def mirrored(kind: str, true: Any, doubt: Any) -> list[tuple[Any, Any]]:
    """The same on a real tensor, and on which of its elements nobody can know; what is computed of
    something in doubt is in doubt."""
    if kind in VIEWS:
        return [(VIEWS[kind](true), VIEWS[kind](doubt))]
    if kind == "new":
        return [(true + 1, torch.full(true.shape, bool(doubt.any())))]
    if kind == "squeeze":
        doubt.unsqueeze_(0)
    if kind in CHANGES:
        CHANGES[kind](true)
    doubt.fill_(kind not in FRESH and (kind == "unknown" or bool(doubt.any())))
    return []


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_views_and_changes_in_place_agree_with_real_tensors(steps: list[tuple[int, str]]) -> None:
    truths = [(torch.arange(24).reshape(4, 6), torch.zeros(4, 6, dtype=torch.bool))]
    fake_mode = torch._subclasses.fake_tensor.FakeTensorMode()
    with fake_mode as nothing, followed(nothing) as mode:
        fakes = [torch.arange(24).reshape(4, 6)]
    for number, kind in steps:
        fake, truth = fakes[number % len(fakes)], truths[number % len(fakes)]
        with nothing, mode:
            if kind == "unknown":
                mode.contents.keep(fake, None)
            made = {**VIEWS, **CHANGES, "new": lambda x: x + 1, "unknown": lambda x: x}[kind](fake)
        if rows := mirrored(kind, *truth):
            fakes, truths = [*fakes, made], [*truths, *rows]
    for fake, (true, doubt) in zip(fakes, truths, strict=True):
        content = mode.contents.of(fake)
        assert (content is None) == bool(doubt.any()) or not doubt.numel()
        assert content is None or content.tolist() == true.tolist()


def test_counts_of_whole_numbers_and_masks_of_zeros_are_real_numbers() -> None:
    """What is worked out beside a fake tensor is no fake tensor itself."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as fake, followed(fake) as mode:
        made = torch.zeros(1 << 20, device="cuda")
        counts = torch.histc(made.long(), bins=2, min=0, max=2)
        ones = torch.ones_like(made)
        contents = [mode.contents.of(tensor) for tensor in (made, counts, ones)]
        assert mode.contents.of(made.add_(torch.rand(1 << 20, device="cuda"))) is None
    assert not any(isinstance(content, FakeTensor) for content in contents)
    assert [content.flatten()[0].item() for content in contents] == [0.0, 1 << 20, 1.0]
