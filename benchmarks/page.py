"""How long the page of `sim serve` takes for a change, without the browser.

    python -m benchmarks.page [CHANGES]

Ten scenarios, each with changes that no cache knows. Seconds of the processor and of the clock, for
the answer (key figures, tables, controls) and for its drawings; median and 95th percentile.
"""

import gc
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from sim.config import reads
from sim.interface.serve.questions import Data, Questions, without_garbage
from sim.interface.serve.states import Bases, State, base_of

SCENARIOS = (
    "gpt3-175b-megatron", "gpt3-175b-selective", "megatron-1.7b", "megatron-39b", "llama2-70b-fsdp",
    "llama3-8b-torchtitan", "mixtral-8x7b", "gpt2-one-gpu", "mtnlg-530b", "t5-11b",
)  # fmt: skip


def timed(question: Callable[[], Data]) -> tuple[float, float]:
    """Seconds of the processor and of the clock of a question, its JSON included."""
    busy, began = time.process_time(), time.perf_counter()
    with without_garbage():
        json.dumps(question())
    return time.process_time() - busy, time.perf_counter() - began


def times(name: str, changes: int) -> np.ndarray:
    """Of each change, the seconds of answer and drawings [changes, 2, 2]."""
    bases, questions = Bases(base_of(name, {})), Questions()

    def state(number: int) -> State:
        bandwidth = f"{25 + 25 * number} Gb/s"
        return bases.state({"settings": {"network.bandwidth": bandwidth}})

    found = []
    with reads.only(bases.places):
        questions.answer(state(changes))
        questions.charts(state(changes))
        gc.freeze()
        for number in range(changes):
            one = state(number)
            found.append([timed(lambda s=one: questions.answer(s, "network.bandwidth")),
                          timed(lambda s=one: questions.charts(s))])  # fmt: skip
    return 1e3 * np.array(found)


def main() -> None:
    changes = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    head = f"{'ms':24}{'answer: CPU':>14}{'p95':>7}{'clock':>8}{'drawings: CPU':>16}{'p95':>7}"
    print(f"{head}{'clock':>8}")
    every = []
    for name in SCENARIOS:
        own = times(name, changes)
        every.append(own)
        _print(name, own)
    _print("all", np.concatenate(every))


def _print(name: str, own: np.ndarray) -> None:
    (answer, clock), (drawn, drawn_clock) = np.median(own, axis=0)
    late = np.percentile(own, 95, axis=0)
    print(f"{name:24}{answer:14.0f}{late[0, 0]:7.0f}{clock:8.0f}"
          f"{drawn:16.0f}{late[1, 0]:7.0f}{drawn_clock:8.0f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
