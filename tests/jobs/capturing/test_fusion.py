"""What is fused, held against inductor's own scheduler on the CPU, whose kernels are others."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import sim
from sim.jobs.recorded.recording import Operator
from tests.lazy import torch

# A GPU splits long sums over few columns into two kernels, and takes softmax in one pass.
OF_A_GPU: dict[str, Any] = {"split_reductions": False, "online_softmax": False}
BATCH, LENGTH, WIDTH = 4, 128, 256


def train(make: str, device: str) -> None:
    from tests.jobs.capturing import modules

    model = getattr(modules, make)().to(device)
    forward = torch.compile(model, options=OF_A_GPU)
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(2):
        x = torch.randn(BATCH, LENGTH, WIDTH, device=device, requires_grad=True)
        with torch.autocast(device, torch.bfloat16):
            y = forward(x)
        y.float().sum().backward()
        optimizer.step()


def fused(operators: list[Operator]) -> list[float]:
    """Bytes of each kernel of inductor's."""
    own = [one for one in operators if one.name.startswith("inductor.")]
    return [one.written + sum(each.bytes for each in one.inputs) for one in own]


def recorded(run: Callable[[], None]) -> list[Operator]:
    """What one step launches."""
    (own,) = sim.capture(run, world=1)
    return [own.operators[event.operator] for event in own.events if event.kind == "kernel"]


def scheduled(run: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The same by inductor on the CPU: its nodes after fusion, of which no code is made."""
    from torch._functorch import config
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import FusedSchedulerNode, NopKernelSchedulerNode

    found: list[float] = []

    def counted(graph: Any) -> Any:
        graph._update_scheduler()
        for node in graph.scheduler.nodes:
            if node.is_extern() or isinstance(node, NopKernelSchedulerNode):
                continue
            loops = getattr(node, "outer_fused_nodes", ())  # several in one function of C++
            parts = [part for loop in loops for part in loop.get_nodes()]
            whole = FusedSchedulerNode(graph.scheduler, parts) if parts else node
            found.append(float(whole.get_read_write_buffers_sizes()))
        call = torch.fx.Interpreter(graph.module).boxed_run
        return SimpleNamespace(call=call, __file__="", key="", value="")

    monkeypatch.setattr(GraphLowering, "compile_to_module", counted)
    torch._dynamo.reset()
    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        config.patch(enable_autograd_cache=False),
    ):
        run()
    torch._dynamo.reset()
    monkeypatch.undo()
    return found


@pytest.mark.parametrize(
    ("make", "kernels", "moved"),
    [
        ("Mlp", 0.07, 0.02),
        ("SwiGlu", 0.0, 0.001),
        pytest.param("Block", 0.07, 0.02, marks=pytest.mark.long),
        ("Loss", 0.25, 0.15),
    ],
)
def test_kernels_and_bytes_are_those_of_inductor_on_the_cpu(
    make: str, kernels: float, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss has 7 kernels for 9: Triton's kernels join the maximum and the sum of a row."""
    here = fused(recorded(lambda: train(make, "cuda")))
    there = scheduled(lambda: train(make, "cpu"), monkeypatch)
    assert len(here) == pytest.approx(len(there), rel=kernels)
    assert sum(here) == pytest.approx(sum(there), rel=moved)


def test_a_compiled_adamw_reads_and_writes_its_states_once() -> None:
    sizes = (512, 1000, 77)

    def run() -> None:
        weights = [torch.nn.Parameter(torch.randn(rows, WIDTH, device="cuda")) for rows in sizes]
        optimizer = torch.optim.AdamW(weights)
        step = torch.compile(optimizer.step)
        for _ in range(2):
            torch.stack([weight.sum() for weight in weights]).sum().backward()
            step()
            optimizer.zero_grad()

    counters, update = fused(recorded(run))
    assert counters == 2 * 4 * len(sizes)
    # weight, gradient and two moments in; weight and moments out; and counters of steps
    assert update == pytest.approx((16 + 12) * sum(sizes) * WIDTH, rel=1e-4)
