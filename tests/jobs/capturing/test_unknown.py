"""What a script asks of values that nobody computes is answered as a healthy run does, or noted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from sim.config.errors import InputError
from sim.jobs.capturing import values
from sim.jobs.capturing.capture import capture, capture_script
from sim.jobs.recorded.file import read, write
from sim.jobs.recorded.recording import Recording


def trained(body: Callable[..., object], world: int = 1, **options: object) -> Recording:
    """A recording of small steps; `body` takes weights and a loss, and may step the optimizer."""

    def train() -> None:
        model = nn.Linear(16, 16).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if world > 1:
            dist.init_process_group("nccl")
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(torch.ones(8, 16, device="cuda")).square().mean()
            loss.backward()
            if body(model, loss) is not False:
                optimizer.step()

    return capture(train, world=world, **options)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda x: torch.isfinite(x), True),
        (lambda x: torch.isnan(x).any() | torch.isinf(x).any(), False),
        (lambda x: torch.isposinf(x).logical_or(x.isneginf()).any(), False),
        (lambda x: x == x, True),
        (lambda x: x != x.detach(), False),
        (lambda x: (x.abs() == float("inf")).float().max() > 0, False),
        (lambda x: (x < float("inf")).all(), True),
    ],
)
def test_numbers_are_finite(ask: Callable[[torch.Tensor], torch.Tensor], answer: bool) -> None:
    said: list[bool] = []
    own = trained(lambda model, loss: said.extend([bool(ask(loss)), bool(ask(model.weight).all())]))
    assert {*said} == {answer}
    assert own.notes == ()


def test_a_step_that_is_taken_if_the_norm_is_finite_is_taken() -> None:
    def body(model: nn.Module, _: torch.Tensor) -> bool:
        return bool(torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))

    assert any(event.phase == "optimizer" for event in trained(body).events)


SKIPS = """import torch
from torch import nn
model = nn.Linear(16, 16).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = 0.5
for _ in range(4):
    loss = model(torch.ones(8, 16, device="cuda")).square().mean()
    if loss > 3.0:
        loss = loss * 2.0
    loss.backward()
    if 0.1 * loss.item() < best:
        model.weight.grad.mul_(2.0)
    optimizer.step()
"""


def skipped(folder: Path, **set_to: float) -> Recording:
    script = folder / "train.py"
    script.write_text(SKIPS)
    given = {f"train.py:{line[1:]}": value for line, value in set_to.items()}
    (own,) = capture_script(script, world=1, values=given)
    return own


def names(own: Recording) -> list[str]:
    return [own.operators[e.operator].name for e in own.events if e.kind == "kernel"]


def test_what_a_script_decides_by_unknown_values_is_noted_and_can_be_set(tmp_path: Path) -> None:
    own = skipped(tmp_path)
    assert [note[: note.index(" (")] for note in own.notes] == [
        "train.py:8: decided by a value that nobody computes, taken to be false",
        "train.py:11: decided by a value that nobody computes, taken to be true",
    ]
    assert "--value train.py:8=true" in own.notes[0]
    assert names(skipped(tmp_path, _8=True)).count("aten.mul") > names(own).count("aten.mul")
    assert names(skipped(tmp_path, _11=False)).count("aten.mul_") < names(own).count("aten.mul_")


def test_what_a_script_asserts_holds() -> None:
    def body(model: nn.Module, loss: torch.Tensor) -> None:
        assert (model.weight >= 0.5).all()  # type: ignore[operator]
        assert not (model.weight < loss).any()  # type: ignore[operator]
        assert loss.item() > 3.0

    assert trained(body).notes == ()


def test_a_number_is_what_is_read_on_its_line(tmp_path: Path) -> None:
    below, above = (names(skipped(tmp_path, _11=value)) for value in (4.9, 5.1))
    assert below.count("aten.mul_") > above.count("aten.mul_")


@pytest.mark.parametrize(
    ("line", "value", "fault"),
    [
        ("_3", True, "train.py:3: no unknown value .*; name train.py:8, train.py:11"),
        ("_8", 0.1, "train.py:8=0.1: the line reads no number; write --value train.py:8=true"),
    ],
)
def test_a_value_that_nobody_asks_for_is_refused(
    tmp_path: Path, line: str, value: float, fault: str
) -> None:
    with pytest.raises(InputError, match=fault):
        skipped(tmp_path, **{line: value})


def test_a_loop_that_waits_for_a_value_ends_with_its_line() -> None:
    def body(_: nn.Module, loss: torch.Tensor) -> None:
        while not loss > 3.0:
            pass

    with pytest.raises(InputError, match=r"test_unknown\.py:\d+: waits for a value"):
        trained(body)


def test_a_loop_that_trains_until_a_value_comes_ends_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(values, "_OPERATORS", 1000)

    def body(_: nn.Module, loss: torch.Tensor) -> bool:
        while loss.item() > 0.5:
            loss = loss * loss
        return False

    said = r"test_unknown\.py:\d+: waits .*operators without an update.*\); try --value .*=false"
    with pytest.raises(InputError, match=said):
        trained(body)


@pytest.mark.parametrize(
    ("before", "said"), [(0, "took 0 steps .*; "), (1, "took 1 steps .*; let it train for 2 .*; ")]
)
def test_a_script_that_a_value_ends_before_its_second_step_is_told_of_the_value(
    before: int, said: str
) -> None:
    steps = iter(range(4))

    def body(_: nn.Module, loss: torch.Tensor) -> bool:
        return next(steps) < before or bool(loss > 3.0)

    with pytest.raises(InputError, match=rf"{said}--value .*test_unknown\.py:\d+=true"):
        trained(body)


def test_storages_have_addresses_of_their_own() -> None:
    found: list[int] = []

    def body(model: nn.Module, _: torch.Tensor) -> None:
        large = [torch.empty(1 << 23) for _ in range(2)]
        tensors = [*model.parameters(), *large]
        found[:] = [tensor.data_ptr() for tensor in tensors]
        whole = torch.empty(8, 8, device="cuda")
        assert whole[1].data_ptr() == whole.data_ptr() + 32
        assert whole.untyped_storage().data_ptr() == whole.data_ptr() != 0

    trained(body)
    assert len({*found}) == 4
    assert 0 not in found


def test_ranks_that_meet_sum_a_number_and_the_host_waits(tmp_path: Path) -> None:
    own = trained(lambda *_: dist.barrier(), world=8)
    calls = [(e.name, e.bytes) for e in own.events if e.kind == "collective"]
    assert calls == [("all_reduce", 4.0)]
    assert any(event.kind == "sync" for event in own.events)
    write((own,), tmp_path / "record.json")
    assert read(tmp_path / "record.json") == (own,)


def test_collectives_to_a_root_and_several_at_once_are_recorded() -> None:
    def body(model: nn.Module, _: torch.Tensor) -> None:
        from torch.distributed.distributed_c10d import _coalescing_manager

        size, own = dist.get_world_size(), torch.ones(16, device="cuda")
        dist.reduce(own, 0)
        dist.gather(own, [torch.empty_like(own) for _ in range(size)])
        with _coalescing_manager(async_ops=True) as both:
            for weight in model.parameters():
                dist.all_reduce(weight.grad)
        both.wait()

    own = trained(body, world=4)
    calls = [(e.name, e.bytes) for e in own.events if e.kind == "collective"]
    assert calls == [("broadcast", 64.0), ("all_gather", 256.0), ("all_reduce", 4.0 * 17 * 16)]


def test_groups_are_of_the_backend_that_was_asked_for() -> None:
    found = set()

    def body(*_: object) -> None:
        group = dist.new_group(backend="gloo")
        dist.all_reduce(torch.ones(3), group=group)
        dist.barrier(group=group)
        found.add((dist.get_backend(), dist.get_backend(group)))

    own = trained(body, world=4)
    assert found == {("nccl", "gloo")}
    assert not any(event.kind == "collective" for event in own.events)


def test_a_recording_that_cannot_be_played_is_not_written(tmp_path: Path) -> None:
    own = trained(lambda *_: None)
    object.__setattr__(own.events[0], "mark", -1)
    with pytest.raises(InputError, match="mark"):
        write((own,), tmp_path / "record.json")
    assert not (tmp_path / "record.json").exists()


@pytest.mark.parametrize("place", [None, "cpu", "cuda", {"cpu": "cuda:0"}, lambda kept, _: kept])
def test_weights_that_are_loaded_have_content_on_the_host_and_lie_where_they_are_asked_to(
    tmp_path: Path, place: Any
) -> None:
    torch.save({"weight": nn.Linear(16, 16).weight, "of": [torch.arange(3)]}, tmp_path / "w.pt")
    found: list[Any] = []

    def body(model: nn.Module, _: torch.Tensor) -> None:
        found.append(torch.load(tmp_path / "w.pt", map_location=place))
        model.load_state_dict({"weight": found[-1]["weight"]}, strict=False)

    trained(body)
    assert isinstance(found[0]["weight"], nn.Parameter)
    there = "cuda" if place in ("cuda", {"cpu": "cuda:0"}) else "cpu"
    assert {own["weight"].device.type for own in found} == {there}
    assert there == "cuda" or found[0]["of"][0].tolist() == [0, 1, 2]
