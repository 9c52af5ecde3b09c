"""torch's pipeline schedules, recorded with a process for each stage."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import sim
from sim.config.errors import InputError
from sim.jobs.capturing.capture import capture_script
from sim.jobs.recorded.axes import staged
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.scaled import scaled
from sim.jobs.recorded.work import work_of
from sim.parallel.schedules.flush import one_f_one_b
from tests.jobs.capturing.conftest import MODEL
from tests.jobs.capturing.test_capture import BATCH, LENGTH, VOCABULARY, WIDTH

LAYERS, STAGES, MICRO = 4, 2, 4
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

LAYERS = {LAYERS}


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
if "compiled" in sys.argv:
    parts = [torch.compile(part) for part in parts]
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
    norm = torch.stack([weight.grad.norm() for weight in weights]).norm()
    dist.all_reduce(norm, group=group)
    optimizer.step()
    optimizer.zero_grad()
"""
SCHEDULES = {"Schedule1F1B": 1, "ScheduleInterleavedZeroBubble": 2}  # with stages a rank

Record = Callable[..., tuple[Recording, ...]]
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    script: Path = tmp_path_factory.mktemp("pipeline") / "train.py"
    script.write_text(MODEL + PIPELINE)
    return cache(lambda *given: capture_script(script, given, world=8, stages=True))


def played(*own: Recording) -> sim.Result:
    return sim.run(sim.RecordedScenario(record=own, topology="dgx-h100-ndr"))


@each_schedule
def test_stages_divide_the_work_of_the_model(record: Record, schedule: str) -> None:
    own = record(schedule)
    assert [(one.rank, axes.mesh) for one, axes in staged(own)] == [
        (rank, {"dp": 4, "pp": STAGES}) for rank in (0, 4)
    ]
    tokens, matrices = MICRO * BATCH * LENGTH, LAYERS * 12 * WIDTH**2 + WIDTH * VOCABULARY
    attention = LAYERS * 12 * tokens * LENGTH * WIDTH
    assert sum(work_of(one).model_flops for one in own) == 6 * matrices * tokens + attention
    norms, embedding = LAYERS * 2 * WIDTH, WIDTH * VOCABULARY
    assert played(*own).parameters == matrices + norms + embedding


@each_schedule
def test_what_one_stage_sends_the_other_receives(record: Record, schedule: str) -> None:
    first, last = record(schedule)
    between = {
        (own.rank, kind): Counter(event.bytes for event in own.events if event.kind == kind)
        for own in (first, last)
        for kind in ("send", "recv")
    }
    assert between[first.rank, "send"] == between[last.rank, "recv"]
    assert between[last.rank, "send"] == between[first.rank, "recv"]
    # Each rank sends every microbatch forward and back from each of its stages, but those at the
    # ends of the model one way only.
    each = SCHEDULES[schedule]
    assert between[first.rank, "send"] == {4 * BATCH * LENGTH * WIDTH: MICRO * (2 * each - 1)}


def test_passes_are_those_of_the_schedule(record: Record) -> None:
    """1F1B in our own order; with zero bubble each piece has every pass of every microbatch."""
    ours = one_f_one_b(STAGES, MICRO)
    for stage, own in enumerate(record("Schedule1F1B")):
        assert [(p.kind, p.microbatch) for p in own.passes] == [a[:2] for a in ours.orders[stage]]
        assert {p.piece for p in own.passes} == {stage}
    every = {(kind, number) for kind in "FIW" for number in range(MICRO)}
    for stage, own in enumerate(record("ScheduleInterleavedZeroBubble")):
        for piece in (stage, stage + STAGES):
            found = {(p.kind, p.microbatch) for p in own.passes if p.piece == piece}
            assert found == every
    shown = played(*record("ScheduleInterleavedZeroBubble")).timeline.spans
    assert {"F", "I", "W", "optimizer"} <= {span.args.get("phase") for span in shown}


@pytest.mark.long
def test_stages_are_compiled(record: Record) -> None:
    """With the same products and messages, pass by pass."""
    for own, eager in zip(record("Schedule1F1B", "compiled"), record("Schedule1F1B"), strict=True):
        assert own.passes == eager.passes
        assert work_of(own) == work_of(eager)
        kinds, before = (Counter(event.kind for event in one.events) for one in (own, eager))
        assert all(kinds[kind] == before[kind] for kind in ("send", "recv", "collective"))
        names = [{operator.name for operator in one.operators} for one in (own, eager)]
        assert names[1] - names[0] >= {"aten.gelu", "aten.native_layer_norm"}


def test_torch_splits_no_backward_pass_that_is_compiled(record: Record) -> None:
    with pytest.raises(InputError, match=r"train\.py:\d+: .*torch does not compile stages"):
        record("ScheduleInterleavedZeroBubble", "compiled")


def test_a_zero_bubble_is_smaller(record: Record) -> None:
    usual, zero = (played(*record(schedule)) for schedule in SCHEDULES)
    assert zero.bubble_fraction < usual.bubble_fraction
    assert usual.breakdown["pipeline communication"] > 0.0


def test_a_stage_that_waits_for_others_is_refused_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MODEL + PIPELINE)
    with pytest.raises(sim.InputError, match=r"waits for a message of rank 4.*--stages"):
        capture_script(script, ["Schedule1F1B"], world=8)


def test_one_stage_alone_is_refused(record: Record) -> None:
    first, last = record("Schedule1F1B")
    for some in ([first], [last], [first, first]):
        with pytest.raises(sim.InputError, match="record it with --stages"):
            played(*some)


SHARDED = PIPELINE.replace(
    "stages = [",
    """
from torch.distributed.fsdp import fully_shard

for part in parts:
    for layer in part.layers:
        fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=False)
    fully_shard(part, mesh=mesh["dp"], reshard_after_forward=False)
stages = [""",
    1,
).replace("all_reduce(norm,", "all_reduce(norm.full_tensor(),")


def test_stages_play_in_another_world_as_those_that_were_captured_there(tmp_path: Path) -> None:
    """Stages move apart, since data parallelism lies within them; the last one is rank 8, not 4."""
    script = tmp_path / "train.py"
    script.write_text(MODEL + SHARDED)
    kind = ["ScheduleInterleavedZeroBubble"]
    own, fresh = (capture_script(script, kind, world=world, stages=True) for world in (8, 16))
    larger = scaled(own, 16)
    for here, there in zip(larger, fresh, strict=True):
        assert (here.rank, here.world) == (there.rank, there.world)
        assert {group.ranks for group in here.groups} == {group.ranks for group in there.groups}
        assert {event.peer for event in here.events} == {event.peer for event in there.events}
    assert played(*larger).step_time == pytest.approx(played(*fresh).step_time, rel=0.01)
    assert played(*larger).ranks == 16
    back = scaled(larger, 8)
    assert [one.groups for one in back] == [one.groups for one in own]
