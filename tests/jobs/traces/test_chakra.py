"""Chakra traces played again: on the network that is named, with all what-ifs."""

import json

import pytest
from click.testing import CliRunner

from sim.config.errors import InputError
from sim.hardware.cluster import topology as topologies
from sim.interface.cli.main import main
from sim.jobs.traces import chakra_format as chakra
from sim.jobs.traces.chakra_format import COLLECTIVES, Node
from sim.jobs.traces.changes import Changes, Network
from sim.jobs.traces.rank_trace import Collective
from sim.jobs.traces.replay import replayed as replay
from sim.scenario.setup import machine

pytest.importorskip("google.protobuf")

SIZE = 1 << 28
JOB = """
model = "llama2-7b"
topology = "dgx-h100-ndr"
gpus = 16
change = {{ model.layers = 4 }}
[plan]
global_batch = 16
{plan}
"""


@pytest.fixture(scope="module")
def cluster():
    topology = topologies.load("dgx-h100-ndr").with_gpus(16)
    return machine(topology, None, (), "test")


def two_ranks(folder, kind="all_reduce", late=0, group="0", **more):
    """100 us, a collective of both, 50 us behind it; rank 8 comes `late` us later."""
    what = {"comm_type": COLLECTIVES[kind], "comm_size": SIZE, **more}
    if group:
        what["pg_name"] = group
    paths = []
    for number, rank in enumerate((0, 8)):
        nodes = [
            Node(number=0, name="forward", kind="compute", microseconds=100 + late * number),
            Node(number=1, name="sum", kind="collective", after=(0,), attributes=what),
            Node(number=2, name="optimizer", kind="compute", microseconds=50, after=(1,)),
        ]
        paths.append(folder / f"job.{rank}.et")
        chakra.write(paths[-1], nodes)
    if group:
        chakra.write_groups(folder / "groups.json", {0: (0, 8)})
    return paths


def alone(cluster, kind, size, members):
    call = Collective(key=("", kind, 1), kind=kind, bytes=size, ranks=len(members), members=members)
    return Network(cluster, 16).seconds(call)


@pytest.mark.parametrize(("kind", "share"), [("all_reduce", 1), ("all_gather", 2)])
def test_collectives_take_what_the_network_takes(tmp_path, cluster, kind, share):
    found = replay(two_ranks(tmp_path, kind), Changes(machine=cluster))
    expected = 150e-6 + alone(cluster, kind, float(share * SIZE), (0, 8))
    assert found.measured is None
    assert found.changed is None
    assert found.replayed.step_time == pytest.approx(expected)
    assert sum(list(found.replayed.ranks[0].values())[:5]) == pytest.approx(expected)


def test_members_on_one_node_are_faster_than_on_two(cluster):
    near, far = (alone(cluster, "all_reduce", float(SIZE), own) for own in ((0, 1), (0, 8)))
    assert near < far


def test_ranks_wait_for_the_last(tmp_path, cluster):
    found = replay(two_ranks(tmp_path, late=900), Changes(machine=cluster))
    assert found.replayed.ranks[0]["other ranks"] == pytest.approx(900e-6)
    assert found.replayed.ranks[8]["other ranks"] == pytest.approx(0.0)


def test_without_a_group_all_ranks_take_part(tmp_path, cluster):
    found = replay(two_ranks(tmp_path, group=""), Changes(machine=cluster))
    expected = 150e-6 + alone(cluster, "all_reduce", float(SIZE), range(16))  # of all GPUs
    assert found.replayed.step_time == pytest.approx(expected)


def test_what_ifs_are_held_against_the_same_network(tmp_path, cluster):
    paths = two_ranks(tmp_path)
    faster = replay(paths, Changes(machine=cluster, kernels=(("forward", 0.5),)))
    assert faster.changed.step_time == pytest.approx(faster.replayed.step_time - 50e-6)
    without = replay(paths, Changes(machine=cluster), removed="optimizer")
    assert without.changed.step_time == pytest.approx(without.replayed.step_time - 50e-6)


def test_collectives_that_are_under_way_together_share_links(tmp_path, cluster):
    """Of two groups with the same members; on links of their own they do not."""
    both = {0: (0, 8), 1: (0, 8)}, {0: (0, 8), 1: (1, 9)}
    found = []
    for groups in both:
        paths = []
        for rank in sorted({rank for own in groups.values() for rank in own}):
            nodes = [
                Node(number=number, name="sum", kind="collective",
                     attributes={"comm_type": 0, "comm_size": SIZE, "pg_name": str(number)})
                for number, own in groups.items() if rank in own
            ]  # fmt: skip
            paths.append(tmp_path / f"job.{rank}.et")
            chakra.write(paths[-1], nodes)
        chakra.write_groups(tmp_path / "groups.json", groups)
        found.append(replay(paths, Changes(machine=cluster)).replayed.step_time)
    one = alone(cluster, "all_reduce", float(SIZE), (0, 8))
    latency = alone(cluster, "all_reduce", 8.0, (0, 8))
    assert found[1] == pytest.approx(one)
    assert found[0] == pytest.approx(latency + 2 * (one - latency), rel=0.01)


def test_the_hosts_own_operations_are_no_computation(tmp_path, cluster):
    nodes = [
        Node(
            number=0, name="load", kind="compute", microseconds=30, attributes={"is_cpu_op": True}
        ),
        Node(number=1, name="forward", kind="compute", microseconds=100, after=(0,)),
    ]
    chakra.write(tmp_path / "job.0.et", nodes)
    found = replay([tmp_path / "job.0.et"], Changes(machine=cluster)).replayed.ranks[0]
    assert found["host"] == pytest.approx(30e-6)
    assert found["compute"] == pytest.approx(100e-6)


def test_a_removed_collective_is_not_carried(tmp_path, cluster):
    without = replay(two_ranks(tmp_path), Changes(machine=cluster), removed="sum")
    assert without.changed.step_time == pytest.approx(150e-6)


def test_nodes_in_any_order_are_put_in_order(tmp_path, cluster):
    paths = two_ranks(tmp_path)
    before = replay(paths, Changes(machine=cluster)).replayed
    for path in paths:
        chakra.write(path, reversed(chakra.read(path)))
    assert replay(paths, Changes(machine=cluster)).replayed == before


def test_messages_meet_by_their_tags(tmp_path, cluster):
    ends = {"comm_src": 0, "comm_dst": 1, "comm_size": SIZE}
    for rank, kind in enumerate(("send", "receive")):
        nodes = [
            Node(number=n, name=f"{kind} {n}", kind=kind, attributes={**ends, "comm_tag": tag})
            for n, tag in enumerate((5, 6))
        ]
        chakra.write(tmp_path / f"job.{rank}.et", nodes)
    paths = [tmp_path / f"job.{rank}.et" for rank in range(2)]
    found = replay(paths, Changes(machine=cluster))
    one = alone(cluster, "point_to_point", float(SIZE), (0, 1))
    assert found.replayed.step_time == pytest.approx(2 * one)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ({"name": "job.et"}, "has no rank in its name"),
        ({"group": "9"}, "runs in group '9', whose members are not known"),
        ({"comm_type": 3}, "is a collective of an unknown kind"),
        ({"comm_size": "a"}, "sum has no comm_size"),
    ],
)
def test_what_cannot_be_played_is_told(tmp_path, cluster, spoilt, said):
    name = spoilt.pop("name", "job.0.et")
    path = two_ranks(tmp_path, **spoilt)[0].rename(tmp_path / name)
    with pytest.raises(InputError, match=said):
        replay([path], Changes(machine=cluster))


def test_a_group_that_a_rank_is_not_in_is_told(tmp_path, cluster):
    paths = two_ranks(tmp_path)
    chakra.write_groups(tmp_path / "groups.json", {0: (0, 1)})
    with pytest.raises(InputError, match="group '0', whose members lack rank 8"):
        replay(paths, Changes(machine=cluster))


def test_a_circle_is_told(tmp_path, cluster):
    path = tmp_path / "job.0.et"
    nodes = [Node(number=n, name="a", kind="compute", after=(1 - n,)) for n in range(2)]
    chakra.write(path, nodes)
    with pytest.raises(InputError, match="wait in a circle"):
        replay([path], Changes(machine=cluster))


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize(
    "plan",
    ["tp = 8\nsequence_parallel = true", "tp = 4\ndp = 1\npp = 4", "zero = 3", "tp = 2\nzero = 1"],
)
def test_a_step_that_was_written_is_played_again(tmp_path, plan):
    """Kernels as they are beside collectives, and with the host's time."""
    job, folder = tmp_path / "job.toml", tmp_path / "traces"
    job.write_text(JOB.format(plan=plan))
    run = CliRunner().invoke(main, ["run", str(job), "--json", "--chakra", str(folder)])
    assert run.exit_code == 0, run.output
    step = json.loads(run.stdout.splitlines()[-1])["step_time"]
    paths = [str(folder / f"rank.{n}.et") for n in range(16)]
    again = CliRunner().invoke(
        main, ["replay", *paths, "--topology", "dgx-h100-ndr", "--gpus", "16", "--json"]
    )
    assert again.exit_code == 0, again.output
    replayed = json.loads(again.stdout)["replayed"]["step_time"]
    assert replayed == pytest.approx(step, rel=1e-3)


@pytest.mark.parametrize(
    ("plan", "each", "close"),
    [("zero = 3", 1, 0.01), ("tp = 8\nsequence_parallel = true", 8, 0.001)],
)
def test_a_step_is_played_at_another_scale(tmp_path, plan, each, close):
    """Two nodes as they are on eight: what kernels lose beside collectives stays as it was."""
    steps, folder = {}, tmp_path / "traces"
    for gpus in (16, 64):
        job = tmp_path / "job.toml"
        text = JOB.format(plan=plan).replace("gpus = 16", f"gpus = {gpus}")
        job.write_text(text.replace("batch = 16", f"batch = {gpus // each}"))
        out = ["--chakra", str(folder)] if gpus == 16 else []
        run = CliRunner().invoke(main, ["run", str(job), "--json", *out])
        assert run.exit_code == 0, run.output
        steps[gpus] = json.loads(run.stdout.splitlines()[-1])["step_time"]
    paths = [str(folder / f"rank.{n}.et") for n in range(16)]
    words = ["--topology", "dgx-h100-ndr", "--gpus", "64", "--json"]
    again = CliRunner().invoke(main, ["replay", *paths, *words])
    replayed = json.loads(again.stdout)["replayed"]["step_time"]
    assert replayed == pytest.approx(steps[64], rel=close)
    assert abs(steps[64] / steps[16] - 1.0) > close


def test_without_a_network_there_is_no_step(tmp_path):
    paths = map(str, two_ranks(tmp_path))
    result = CliRunner().invoke(main, ["replay", *paths])
    assert result.exit_code == 2
    assert "--topology NAME" in result.output
