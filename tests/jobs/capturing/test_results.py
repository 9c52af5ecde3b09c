"""What operators give is remembered: it is what they would give if they were asked again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.config.errors import InputError
from sim.jobs.capturing.capture import capture, capture_script
from sim.jobs.capturing.results import ResultCache
from tests.jobs.capturing.conftest import DDP, MODEL
from tests.jobs.capturing.test_memory import wanted
from tests.jobs.capturing.test_sharded import FSDP2
from tests.lazy import torch

CASES: dict[str, Callable[[Any], Any]] = {
    "a product": lambda x: x @ x.transpose(-1, -2),
    "a view of a view": lambda x: x.narrow(0, 1, 2).transpose(0, 1).unsqueeze(1),
    "several views": lambda x: x.split([1, 3])[1],
    "a sum of rows": lambda x: x.sum(1, keepdim=True),
    "several results": lambda x: x.sort(-1)[1],
    "in place": lambda x: x.clone().mul_(2),
    "views in place": lambda x: x.clone().t_().unsqueeze_(0),
    "into an empty one": lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)),
    "larger": lambda x: x.clone().resize_(8, 8),
    "an integer is not a float": lambda x: (x.long() * 2, x.long() * 2.0)[1],
    "nor a truth": lambda x: (x.long() * 1, x.bool() * True)[1],
    "a conjugate": lambda x: torch.view_as_real(torch.view_as_complex(x[:, :2]).conj() * 1j),
    "by indices": lambda x: x[torch.tensor([0, 2, 2], device=x.device)],
    "by another dtype": lambda x: x.to(torch.bfloat16),
    "many at once": lambda x: torch._foreach_add([x, x.clone()], 1.0)[1],
    "strides": lambda x: torch.empty_like(x.t()),
}


@pytest.mark.parametrize("case", CASES)
def test_a_result_has_the_shape_and_memory_of_a_real_one(case: str) -> None:
    def looks(device: str) -> list[object]:
        one = CASES[case](torch.ones(4, 6, device=device))
        memory = one.untyped_storage().nbytes(), one.storage_offset()
        return [one.shape, one.stride(), one.dtype, one.is_conj(), *memory]

    def train() -> None:
        found.extend(looks("cuda") for _ in range(3))

    found: list[object] = []
    with pytest.raises(InputError, match="took 0 steps"):
        capture(train, world=1)
    assert found == [looks("cpu")] * 3


def test_a_mask_is_not_remembered() -> None:
    def train() -> None:
        for count in (1, 3):
            mask = (torch.arange(4) < count).to("cuda")
            found.append(torch.ones(4, 6, device="cuda")[mask].shape)

    found: list[object] = []
    with pytest.raises(InputError, match="took 0 steps"):
        capture(train, world=1)
    assert found == [(1, 6), (3, 6)]


@pytest.mark.parametrize("end", [DDP, FSDP2], ids=["ddp", "fsdp2"])
def test_a_recording_is_the_same_where_nothing_is_remembered(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(MODEL + end)

    def looks() -> list[object]:
        (own,) = capture_script(script, world=16)
        return [own.events, own.operators, own.groups, wanted(own), len(own.memory)]

    remembered = looks()
    monkeypatch.setattr(
        ResultCache, "of", lambda self, func, args, kwargs, asked: func(*args, **kwargs)
    )
    assert looks() == remembered
