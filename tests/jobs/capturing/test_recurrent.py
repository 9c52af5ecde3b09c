"""Recurrent layers are cuDNN's: one operator forward and one backward for a stack of layers."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import sim
from sim.config.errors import InputError
from sim.jobs.capturing.capture import capture
from sim.jobs.recorded.edits.batch import batch_of
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Operator, Recording
from sim.jobs.recorded.setup import RecordedScenario, from_scenario
from sim.jobs.recorded.work import work_of

BATCH, STEPS, INPUT, WIDTH, LAYERS = 4, 16, 32, 64, 2
KINDS = [
    ("LSTM", {}),
    ("LSTM", {"bidirectional": True, "dropout": 0.1}),
    ("LSTM", {"proj_size": 16}),
    ("GRU", {"bias": False, "bidirectional": True}),
    ("GRU", {"batch_first": False}),
    ("RNN", {"nonlinearity": "relu"}),
]


def layer(kind: str, options: dict[str, Any], **place: Any) -> Any:
    options = {"num_layers": LAYERS, "batch_first": True, **options}
    return getattr(nn, kind)(INPUT, WIDTH, **options, **place)


def data(model: Any, **place: Any) -> torch.Tensor:
    shape = (BATCH, STEPS) if model.batch_first else (STEPS, BATCH)
    return torch.ones(*shape, INPUT, requires_grad=True, **place)


def recorded(kind: str, options: dict[str, Any], dtype: torch.dtype | None = None) -> Recording:
    def train() -> None:
        model = layer(kind, options, device="cuda", dtype=dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x = data(model, device="cuda", dtype=dtype)
            y, state = model(x)
            hidden = state[0] if kind == "LSTM" else state
            width, directions = model.proj_size or WIDTH, 1 + model.bidirectional
            assert y.shape == (*x.shape[:2], directions * width)
            assert hidden.shape == (LAYERS * directions, BATCH, width)
            y.mean().backward()
            assert x.grad is not None
            assert all(weight.grad is not None for weight in model.parameters())
            optimizer.step()
            optimizer.zero_grad()

    return capture(train, world=1)[0]


def recurrent(recording: Recording) -> dict[str, list[Operator]]:
    """The recurrent operators of each phase."""
    found: dict[str, list[Operator]] = {}
    for event in recording.events:
        if event.kind == "kernel" and "rnn" in recording.operators[event.operator].name:
            found.setdefault(event.phase, []).append(recording.operators[event.operator])
    return found


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_a_stack_is_one_operator_each_way_with_the_flops_that_torch_counts(
    kind: str, options: dict[str, Any]
) -> None:
    """Torch composes the layers on the CPU; with gradients of first states all products count."""
    model = layer(kind, options)
    matrices = sum(weight.numel() for weight in model.parameters() if weight.dim() == 2)
    cells = LAYERS * (1 + model.bidirectional)
    first = torch.zeros(cells, BATCH, model.proj_size or WIDTH, requires_grad=True)
    states = (first, torch.zeros(cells, BATCH, WIDTH)) if kind == "LSTM" else first
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        model(data(model), states)[0].mean().backward()

    own = recorded(kind, options)
    ((forward,), (backward,)) = recurrent(own).values()
    flops = [kernel_of(operator).flops for operator in (forward, backward)]  # type: ignore[union-attr]
    assert flops == [2 * BATCH * STEPS * matrices, 4 * BATCH * STEPS * matrices]
    assert sum(flops) == counter.get_total_flops() == work_of(own).executed_flops
    assert own.parameters == sum(weight.numel() for weight in model.parameters())


def test_what_backward_needs_is_kept_until_then() -> None:
    """LSTM: four gates and the cell's state of each layer, and what the lower layer makes."""
    own = recorded("LSTM", {})
    reserve = 4 * BATCH * STEPS * WIDTH * (5 * LAYERS + LAYERS - 1)
    assert recurrent(own)["forward"][0].outputs[3].bytes == reserve
    taken = [row for row in own.memory if row.bytes == reserve and row.event >= 0]
    (end,) = (row for row in own.memory if row.block == taken[0].block and not row.bytes)
    assert own.events[end.event].phase != "forward"


def test_layers_run_as_they_do_without_cudnn() -> None:
    with torch.backends.cudnn.flags(enabled=False):
        composed = recorded("LSTM", {})
    assert not recurrent(composed)
    assert time(composed) > time(recorded("LSTM", {}))


def test_autocast_runs_them_in_fp16() -> None:
    def train() -> None:
        model = layer("GRU", {}, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                y, _ = model(data(model, device="cuda"))
            assert y.dtype == torch.float16
            y.float().mean().backward()
            optimizer.step()

    ((forward,), _) = recurrent(capture(train, world=1)[0]).values()
    assert {tensor.dtype for tensor in forward.inputs} == {"float16"}


def test_layers_in_evaluation_keep_nothing_and_have_no_backward() -> None:
    def train() -> None:
        model = layer("LSTM", {}, device="cuda").eval()
        model(data(model, device="cuda"))[0].mean().backward()

    with pytest.raises((RuntimeError, InputError), match="only be called in training mode"):
        capture(train, world=1)


@pytest.mark.parametrize("made", [False, True])
def test_packed_sequences_are_refused(made: bool) -> None:
    from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

    def train() -> None:
        model = layer("LSTM", {}, device="cuda")
        x = data(model, device="cuda")
        if made:
            model(PackedSequence(x.flatten(0, 1), torch.full((STEPS,), BATCH)))
        model(pack_padded_sequence(x, torch.full((BATCH,), STEPS), batch_first=True))

    with pytest.raises(InputError, match="padded sequences"):
        capture(train, world=1)


def scenario(recording: Recording) -> RecordedScenario:
    return RecordedScenario(record=(recording,), topology="dgx-h100-ndr", stack="torchtitan-eager")


def time(recording: Recording) -> float:
    return sim.run(scenario(recording)).step_time


def test_a_language_model_of_lstms_is_recorded_and_played() -> None:
    vocabulary, width, length, batch = 1000, 128, 35, 20

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.lstm = nn.LSTM(width, width, 2, dropout=0.5)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, tokens: torch.Tensor, state: Any) -> Any:
            x, state = self.lstm(self.embedding(tokens), state)
            return self.head(x), state

    def train() -> None:
        model, state = Model().to("cuda"), None
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            tokens = torch.randint(vocabulary, (length, batch)).to("cuda")
            logits, state = model(tokens, state)
            state = tuple(part.detach() for part in state)
            nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            optimizer.zero_grad()

    own = capture(train, world=1)[0]
    cells = 2 * (8 * width * width + 8 * width)
    assert own.parameters == 2 * vocabulary * width + vocabulary + cells
    assert {phase: len(found) for phase, found in recurrent(own).items()} == {
        "forward": 1, "backward": 1,
    }  # fmt: skip
    matrices = 2 * 8 * width * width + vocabulary * width
    assert work_of(own).model_flops == 3 * 2 * length * batch * matrices
    assert work_of(own).tokens == length * batch
    assert time(own) > 0
    assert "lower bound" in " ".join(own.notes)
    with pytest.raises(InputError, match="the batch as second dimension"):
        batch_of(*from_scenario(scenario(own)).stages[0])
