"""What a step consists of: the shares of its critical path are its sensitivities."""

import math

import pytest

from sim import scenario
from sim.engine.clock import play
from sim.engine.fold import fold
from sim.model.kernel import Attention, Gemm, Stream
from sim.parallel import work
from sim.parallel.step import training_step
from sim.setup import from_scenario
from sim.work_shares import work_shares

SLOWER = 1.01
KINDS = {"gemm": Gemm, "attention": Attention, "stream": Stream}


def played(name: str):
    setup = from_scenario(scenario.load(name))
    score = fold(training_step(setup.job), setup.machine)
    return setup.job, score, play(score)


def slowed(kind: str, usual):
    """Kernel times with one class slower."""
    return lambda kernel, *rest: (
        usual(kernel, *rest) * (SLOWER if isinstance(kernel, KINDS[kind]) else 1.0)
    )


# Pipeline bubbles, gradients that hide compute, and launches that hide kernels.
@pytest.mark.parametrize("name", ["megatron-39b", "llama3-405b-16k", "gpt2-one-gpu"])
def test_shares_are_the_sensitivities_that_slower_kernels_show(name, monkeypatch) -> None:
    job, score, timeline = played(name)
    shares = work_shares(job, score, timeline)
    assert sum(shares.values()) == pytest.approx(1.0)
    for kind in ("gemm", "stream"):
        with monkeypatch.context() as patch:
            patch.setattr(work, "kernel_time", slowed(kind, work.kernel_time))
            slower = played(name)[2].end
        seen = math.log(slower / timeline.end) / math.log(SLOWER)
        assert seen == pytest.approx(shares.get(kind, 0.0), abs=0.035)  # transfers share links
