"""A profile of layers as a model: its times and sizes come out as they were measured."""

import csv
from pathlib import Path

import pytest

from sim.analysis.search.search import search
from sim.analysis.search.space import space
from sim.config import catalog
from sim.config.errors import InputError
from sim.kind import load
from sim.model import counts, reading
from sim.parallel.pipeline_p2p import sent_bytes
from sim.program.operations import Segment
from sim.scenario.setup import PlanSetup, from_scenario
from sim.simulate import answer as simulate

PROFILES = ["gnmt-v100", "resnet18-v100"]
HEADER = "layer,forward_ms,backward_ms,activation_bytes,parameter_bytes\n"
MODEL = """
kind = "profiled"
profile = "own.csv"
batch = 8
device = "V100 16GB SXM2"
"""


def layers_of(name: str) -> list[dict[str, str]]:
    with (catalog.packaged_root() / "models" / f"{name}.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["layer"] != "Input"]


def total(name: str, column: str) -> float:
    return sum(float(row[column]) for row in layers_of(name))


def setup(name: str, **plan: object) -> PlanSetup:
    settings = {f"plan.{key}": value for key, value in plan.items()}
    gpus = int(str(plan.get("pp", 4))) * int(str(plan.get("dp", 1)))
    return from_scenario(load("pipedream-gnmt", {"model": name, "gpus": gpus, **settings}))


def seconds(own: PlanSetup, action: str) -> float:
    """What a microbatch takes of all layers together."""
    works = (own.job.work(kind, action) for kind in own.job.model.row)
    return sum(i.device for work in works for i in work.flat() if isinstance(i, Segment))


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("share", [1, 2])
def test_one_microbatch_on_one_gpu_takes_the_sum_of_its_layers(name: str, share: int) -> None:
    batch = reading.load(name).source.batch // share
    own = setup(name, pp=1, microbatch=batch, global_batch=batch)
    forward, backward = total(name, "forward_ms") / 1e3, total(name, "backward_ms") / 1e3
    assert seconds(own, "F") == pytest.approx(forward / share)
    assert seconds(own, "B") == pytest.approx(backward / share)
    result = simulate(own)
    assert result.breakdown["compute"] == pytest.approx((forward + backward) / share)


@pytest.mark.parametrize("name", PROFILES)
def test_parameters_and_activations_are_those_of_the_file(name: str) -> None:
    assert counts.parameters(reading.load(name)) * 4 == total(name, "parameter_bytes")
    batch = reading.load(name).source.batch
    job = setup(name, pp=1, microbatch=batch, global_batch=batch).job
    saved = sum(block.saved for block in job.blocks(job.chunks[0][0]))
    assert saved == pytest.approx(total(name, "activation_bytes"))


@pytest.mark.parametrize("name", [*PROFILES, "resnet50"])
@pytest.mark.parametrize("pp", [2, 4])
def test_a_stage_hands_over_what_its_last_layer_makes(name: str, pp: int) -> None:
    job = setup(name, pp=pp, microbatch=32, global_batch=128).job
    sizes = sent_bytes(job)
    last, ends = 0, []
    for (chunk,) in job.chunks[:-1]:
        last += chunk.layers
        ends.append(last - 1)
    assert sizes == tuple(32 * job.model.source.handed(end, 4.0) for end in ends)
    if name in PROFILES:
        rows = sorted(layers_of(name), key=lambda row: int(row["node"][4:]))
        each = [float(rows[end]["activation_bytes"]) for end in ends]
        assert sizes == pytest.approx([32 * x / job.model.source.batch for x in each])


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("pp", [2, 3, 4])
def test_no_border_between_two_stages_can_be_moved_to_make_the_slowest_faster(
    name: str, pp: int
) -> None:
    job = setup(name, pp=pp, microbatch=32, global_batch=128).job
    costs = [
        (float(row["forward_ms"]) + float(row["backward_ms"]))
        for row in sorted(layers_of(name), key=lambda row: int(row["node"][4:]))
    ]
    counts_of = [chunk.layers for (chunk,) in job.chunks]

    def slowest(sizes: list[int]) -> float:
        return max(sum(costs[sum(sizes[:i]) : sum(sizes[: i + 1])]) for i in range(pp))

    for border in range(pp - 1):
        for step in (-1, 1):
            moved = list(counts_of)
            moved[border] += step
            moved[border + 1] -= step
            assert slowest(moved) >= slowest(counts_of) * (1 - 1e-9)


@pytest.mark.parametrize("name", ["gnmt-v100", "resnet50", "vgg16"])
def test_with_a_clock_and_without_unlike_messages_take_as_long(name: str) -> None:
    own = setup(name, pp=4, microbatch=16, global_batch=128)
    with_clock, without = simulate(own, engine="clock"), simulate(own)
    assert without.engine == "replay"
    assert with_clock.step_time == pytest.approx(without.step_time, rel=1e-9)


@pytest.mark.parametrize("name", ["resnet50", "vgg16"])
def test_a_convolutional_net_computes_as_much_on_four_stages_as_on_one(name: str) -> None:
    one, four = (setup(name, pp=pp, microbatch=16, global_batch=128) for pp in (1, 4))
    whole = seconds(one, "F") + seconds(one, "B")
    stages = [sum(seconds_of(four, kind) for kind in chunk.kinds) for (chunk,) in four.job.chunks]
    assert sum(stages) == pytest.approx(whole)
    largest = max(seconds_of(four, kind) for kind in four.job.model.row)
    assert max(stages) <= whole / 4 + largest
    parameters = counts.parameters(one.job.model)
    assert parameters == reading.load(name).source.parameters


def seconds_of(own: PlanSetup, kind: str) -> float:
    works = (own.job.work(kind, action) for action in "FB")
    return sum(i.device for work in works for i in work.flat() if isinstance(i, Segment))


@pytest.mark.parametrize("name", ["resnet50", "gnmt-v100"])
def test_layouts_of_a_network_are_looked_for(name: str) -> None:
    only = {"zero": ("0",), "microbatch": ("16", "32"), "schedule": ("1f1b",)}
    own = space(
        name, "dgx-1-v100-16gb", gpus=4, global_batch=128, stack="pytorch-ddp", precision="fp32",
        only=only,
    )  # fmt: skip
    found = search(own)
    assert found.layouts
    assert {layout.plan.tp * layout.plan.cp for layout in found.layouts} == {1}


def written(folder: Path, rows: str, header: str = HEADER) -> None:
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models" / "own.toml").write_text(MODEL)
    (folder / "own.csv").write_text(header + rows)


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        (HEADER.replace("backward_ms,", ""), "conv,1,2,3\n", "column backward_ms is missing"),
        (HEADER, "", "has no layers"),
        (HEADER, "conv,1,-2,3,4\n", "backward_ms = -2 is negative"),
        (HEADER, "conv,1,nan,3,4\n", "backward_ms = nan is negative or infinite"),
        (HEADER, "conv,1,2,many,4\n", "activation_bytes = 'many' is no number"),
        (HEADER, "conv,1,2\n", "activation_bytes = None is no number"),
        ("model," + HEADER, "a,conv,1,2,3,4\nb,conv,1,2,3,4\n", "has 2 models"),
        ("node," + HEADER, "first,conv,1,2,3,4\n", "node 'first' does not end in its number"),
    ],
)
def test_a_profile_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, rows: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, rows, header)
    with pytest.raises(InputError, match=said):
        setup("own", pp=1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"plan.precision": "fp16"}, "was measured in fp32, not in fp16"),
        ({"topology": "dgx-a100-hdr"}, "was measured on V100 16GB SXM2, not on A100"),
        ({"plan.tp": 2, "gpus": 8}, "tp = 2, but only a transformer's layers can be divided"),
        ({"plan.cp": 2, "gpus": 8}, "cp = 2, but only a transformer's layers can be divided"),
    ],
)
def test_what_a_network_cannot_do_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        from_scenario(load("pipedream-gnmt", change))


def test_a_stage_without_a_layer_is_refused() -> None:
    with pytest.raises(InputError, match="chunk 0 of 2 would hold nothing"):
        setup("gnmt-v100", pp=2, layers=[0, 17])
