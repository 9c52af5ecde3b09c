"""torch's pipeline schedules, recorded with a process for each stage."""

from functools import cache
from pathlib import Path

import pytest

import sim
from sim.capturing.capture import capture_script
from sim.recording.axes import staged
from sim.recording.recording import Recording
from sim.recording.work import work_of
from tests.capture.conftest import MODEL
from tests.capture.test_capture import BATCH, LENGTH, MATRICES, PARAMETERS

STAGES, MICRO = 2, 4
PIPELINE = f"""
import sys
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, schedules

dist.init_process_group("nccl")
name, world = sys.argv[1], dist.get_world_size()
mesh = init_device_mesh("cuda", ({STAGES}, world // {STAGES}), mesh_dim_names=("pp", "dp"))
group, stage = mesh.get_group("pp"), mesh.get_local_rank("pp")
kind = getattr(schedules, name)
several = issubclass(kind, schedules.PipelineScheduleMulti)
count = 2 * {STAGES} if several else {STAGES}
mine = [stage, 2 * {STAGES} - 1 - stage] if "ZBV" in name else range(stage, count, {STAGES})

LAYERS = 4


class Part(nn.Module):
    def __init__(self, index):
        super().__init__()
        whole, each = Model(), LAYERS // count
        self.embedding = whole.embedding if index == 0 else None
        self.layers = whole.layers[each * index : each * (index + 1)]
        self.head = whole.head if index == count - 1 else None

    def forward(self, x):
        x = self.embedding(x) if self.embedding else x
        for layer in self.layers:
            x = layer(x)
        return self.head(x) if self.head else x


parts = [Part(index).to("cuda") for index in mine]
stages = [
    PipelineStage(part, index, count, torch.device("cuda"), group=group)
    for part, index in zip(parts, mine)
]


def loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


schedule = kind(stages if several else stages[0], {MICRO}, loss_fn=loss)
weights = [weight for part in parts for weight in part.parameters()]
optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=True)
for _ in range(2):
    tokens = torch.randint(VOCABULARY, ({MICRO} * BATCH, LENGTH)).to("cuda")
    first, last = 0 in mine, count - 1 in mine
    schedule.step(*([tokens] if first else []), **({{"target": tokens}} if last else {{}}))
    optimizer.step()
    optimizer.zero_grad()
"""
SCHEDULES = ["Schedule1F1B", "ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    script: Path = tmp_path_factory.mktemp("pipeline") / "train.py"
    script.write_text(MODEL + PIPELINE)

    @cache
    def record(schedule: str) -> tuple[Recording, ...]:
        return capture_script(script, [schedule], world=8, stages=True)

    return record


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stages_divide_the_model_and_exchange_what_lies_between(recorded, schedule: str) -> None:  # type: ignore[no-untyped-def]
    own = recorded(schedule)
    assert [one.rank for one in own] == [0, 4]
    assert dict(staged(own)[0][1].mesh) == {"dp": 4, "pp": STAGES}
    flops = sum(work_of(one).model_flops for one in own)
    print(schedule, flops, [len(o.events) for o in own])
    result = sim.run(sim.RecordedScenario(record=own, topology="dgx-h100-ndr"))
    print(result.step_time, result.bubble_fraction, result.breakdown, result.stages)
