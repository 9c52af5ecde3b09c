"""Kernels of a compiled graph come from the lines of the script that they were."""

from collections import Counter
from collections.abc import Iterator

import pytest

from sim.jobs.recorded.recording import Event, Recording
from tests.jobs.capturing.conftest import MODEL, Capture

STEP = """
train(torch.compile(Model().to("cuda")))
"""
AGAIN = """
from torch.utils.checkpoint import checkpoint

class Checkpointed(Model):
    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)

train(torch.compile(Checkpointed().to("cuda")))
"""


def kernels(own: Recording, script: str) -> Iterator[tuple[Event, str, str]]:
    """Kernels with the names of their operators and the texts of their lines."""
    texts = (MODEL + script).splitlines()
    for event in own.events:
        if event.kind == "kernel":
            number = int(own.lines[event.line].rpartition(":")[2])
            yield event, own.operators[event.operator].name, texts[number - 1].strip()


def products(own: Recording, script: str, *, again: bool) -> Counter[tuple[str, str]]:
    """How often each product, and attention, forward and back, is of a line."""
    return Counter(
        (name, text)
        for event, name, text in kernels(own, script)
        if (name == "aten.mm" or "attention" in name) and event.again == again
    )


def test_a_kernel_of_a_graph_is_of_the_line_that_it_was(captured: Capture) -> None:
    own = captured(STEP)
    eager = STEP.replace("torch.compile(Model().to", "(Model().to")
    assert products(own, STEP, again=False) == products(captured(eager), eager, again=False)
    lines = {name: text for _, name, text in kernels(own, STEP) if "gelu" in name}
    assert set(lines.values()) == {"return x + self.down(F.gelu(self.up(x)))"}
    assert not any("compile" in text for _, _, text in kernels(own, STEP))


@pytest.mark.long
def test_what_a_graph_runs_again_is_marked_as_in_an_eager_step(captured: Capture) -> None:
    own = captured(AGAIN)
    eager = AGAIN.replace("torch.compile(Checkpointed()", "(Checkpointed()")
    plain = captured(eager)
    assert products(own, AGAIN, again=True) == products(plain, eager, again=True) != {}
    assert products(own, AGAIN, again=False) == products(plain, eager, again=False)
    assert not any(event.again for event in captured(STEP).events)


def test_what_a_graph_keeps_is_of_the_lines_that_make_it(captured: Capture) -> None:
    own = captured(STEP)
    texts = (MODEL + STEP).splitlines()
    kept = {
        texts[int(own.lines[row.line].rpartition(":")[2]) - 1].strip()
        for row in own.memory
        if row.event >= 0 and row.part == 3  # activations
    }
    assert "return x + self.down(F.gelu(self.up(x)))" in kept
    assert not any("compile" in text for text in kept)
