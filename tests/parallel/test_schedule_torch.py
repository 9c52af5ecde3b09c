"""Schedules against those that PyTorch itself generates."""

from pathlib import Path
from typing import Any

import pytest

from sim.parallel.schedule import schedule
from sim.parallel.schedule_file import from_text, refuse_deadlock, to_text
from tests.lazy import torch


@pytest.fixture(autouse=True)
def _with_torch() -> None:
    pytest.importorskip("torch")


class _FakeStage:
    """As much of a pipeline stage as a schedule asks for when it writes down its order."""

    def __init__(self, rank: int, index: int, ranks: int, stages: int) -> None:
        self.group_rank, self.group_size = rank, ranks
        self.stage_index, self.num_stages = index, stages
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.has_backward = True
        self.device = torch.device("cpu")
        self.submod = torch.nn.Identity()
        self.group = None
        self.stage_index_to_group_rank: dict[int, int] = {}


def made(kind: str, ranks: int, chunks: int, microbatches: int) -> Any:
    """A schedule of PyTorch's."""
    from torch.distributed.pipelining import schedules

    schedule_class = getattr(schedules, kind)
    stages = [_FakeStage(0, c * ranks, ranks, ranks * chunks) for c in range(chunks)]
    single = issubclass(schedule_class, schedules.PipelineScheduleSingle)
    return schedule_class(stages[0] if single else stages, microbatches, loss_fn=lambda *_: None)


def orders(kind: str, ranks: int, chunks: int, microbatches: int) -> str:
    """PyTorch's own order of all ranks, as action strings."""
    theirs = made(kind, ranks, chunks, microbatches)
    written = theirs.pipeline_order if chunks > 1 else theirs._get_pipeline_order()
    rows = [[action for action in written[rank] if action is not None] for rank in range(ranks)]
    if kind == "Schedule1F1B":
        # Its written order counts the forward passes of the last rank from 1, its runtime from 0.
        rows[-1] = [
            a._replace(microbatch_index=a.microbatch_index - 1) if a.computation_type == "F" else a
            for a in rows[-1]
        ]
    return to_text(from_text("\n".join(" ".join(map(str, row)) for row in rows)))


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "kind", "chunks"),
    [
        ("gpipe", "ScheduleGPipe", 1),
        ("1f1b", "Schedule1F1B", 1),
        ("interleaved", "ScheduleInterleaved1F1B", 2),
        ("interleaved", "ScheduleInterleaved1F1B", 3),
        ("looped-bfs", "ScheduleLoopedBFS", 2),
        ("interleaved-zero-bubble", "ScheduleInterleavedZeroBubble", 2),
        ("interleaved-zero-bubble", "ScheduleInterleavedZeroBubble", 3),
        ("zb-v", "ScheduleZBVZeroBubble", 2),
        ("dualpipev", "ScheduleDualPipeV", 2),
    ],
)
def test_orders_are_pytorchs_own(name, kind, chunks, ranks, times) -> None:
    microbatches = 2 * ranks * times
    ours = schedule(name, ranks, microbatches, chunks)
    assert to_text(ours) == orders(kind, ranks, chunks, microbatches)
    refuse_deadlock(ours)


@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 4), (4, 6), (4, 10), (3, 8), (6, 14)])
def test_groups_of_interleaved_1f1b_are_pytorchs_rounds(ranks, microbatches) -> None:
    ours = schedule("interleaved", ranks, microbatches, 2)
    assert to_text(ours) == orders("ScheduleInterleaved1F1B", ranks, 2, microbatches)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("interleaved", "ScheduleInterleaved1F1B"),
        ("looped-bfs", "ScheduleLoopedBFS"),
        ("interleaved-zero-bubble", "ScheduleInterleavedZeroBubble"),
        ("zb-v", "ScheduleZBVZeroBubble"),
        ("dualpipev", "ScheduleDualPipeV"),
    ],
)
@pytest.mark.parametrize("contents", ["compute_only", "compute_comms"])
def test_files_that_pytorch_writes_are_read(name, kind, contents, tmp_path: Path) -> None:
    path = tmp_path / "written.csv"
    made(kind, 4, 2, 8)._dump_csv(str(path), format=contents)
    assert to_text(schedule(str(path), 4, 8, 2)) == to_text(schedule(name, 4, 8, 2))
