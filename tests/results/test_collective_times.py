"""`sim collective` says what nccl-tests would: its columns, the library's choice, the links."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sim
from sim.analysis.collectives.times import CollectiveTimes
from sim.collectives.libraries import backend
from sim.collectives.schedule import KINDS, CollectiveKind, GroupShape
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware.cluster import topology
from sim.interface.cli.main import main
from sim.interface.plots.collective import times as figure
from sim.interface.plots.node import NIC_LINE

TWO_NODES = topology.load("dgx-a100-hdr").with_gpus(16)
SIZES = [2.0**power for power in range(10, 34, 3)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "point_to_point"])
def test_the_choice_is_the_library_s(kind: CollectiveKind) -> None:
    machine = Machine(TWO_NODES, backend.load(TWO_NODES.backend))
    times = sim.collective(kind, SIZES, TWO_NODES)
    for row in (row for row in times.rows if row.chosen):
        cost = machine.call_cost(kind, row.size, GroupShape.of(16, 8))
        assert (row.algorithm, row.protocol) == (cost.algorithm, cost.protocol)
        assert row.seconds <= min(one.seconds for one in times.rows if one.size == row.size)


@pytest.mark.parametrize(
    ("kind", "factor", "count"),
    [("all_reduce", 30 / 16, 2**28), ("all_gather", 15 / 16, 2**24), ("broadcast", 1.0, 2**28)],
)
def test_bandwidths_are_those_of_nccl_tests(
    kind: CollectiveKind, factor: float, count: int
) -> None:
    """Its PERFORMANCE.md: 2 (n-1)/n, (n-1)/n, 1; counts of floats, of one rank where it gathers."""
    for row in sim.collective(kind, 2**30, TWO_NODES).rows:
        assert row.algbw == pytest.approx(2**30 / row.seconds)
        assert row.busbw == pytest.approx(factor * row.algbw)
        assert row.count == count


def test_grouped_sends_grow_evenly_within_a_protocol_and_say_where_it_changes() -> None:
    """A message of twice the size takes longer, but no longer than two; NCCL's fixed threshold of
    16 KiB to a peer is the only exception, which the answer explains."""
    times = sim.collective("all_to_all", "64KiB..64MiB", "dgx-h100-ndr", gpus=512)
    protocols = [row.protocol for row in times.rows]
    assert [row.size for row in times.rows if row.protocol == "ll"][-1] == 2.0**14 * 512
    for last, row, change in zip(times.rows, times.rows[1:], protocols[1:], strict=False):
        assert row.seconds > last.seconds
        assert change != last.protocol or row.seconds <= 2.0 * last.seconds
    assert "times jump between 8.00 MiB and 16.0 MiB" in str(times)
    assert "times jump" not in str(sim.collective("all_to_all", 2**30, "dgx-h100-ndr", gpus=512))


def test_no_size_is_quicker_than_the_links_allow_and_large_ones_come_near() -> None:
    times = sim.collective("all_reduce", [*SIZES, 2.0**40], TWO_NODES)
    assert all(row.busbw < times.bound for row in times.rows)
    assert max(row.busbw for row in times.rows) > 0.99 * times.bound


def test_a_slow_link_is_the_busiest_and_takes_its_factor() -> None:
    usual, sick = (
        sim.collective("all_reduce", 2**33, TWO_NODES, algorithm=["ring"], slow=slow)
        for slow in ({}, {"node1.nic2.up": 2.0})
    )
    (slow,) = (row for row in sick.rows if row.chosen)
    assert next(iter(slow.links)) == "node1.nic2.up"
    assert sick.bound == pytest.approx(usual.bound / 2)


def test_traffic_of_others_takes_its_rate_as_a_straggler_of_any_scenario_does() -> None:
    """100 Gb/s of 200 halve a NIC; the same key makes a scenario's step longer."""
    half = f"{TWO_NODES.capacity(('nic-up', 1, 2)) / 2e9} GB/s"
    key = {"straggler": [{"link": "node1.nic2", "traffic": half}]}
    ways = ({"slow": {"node1.nic2": 2.0}}, {"traffic": {"node1.nic2": half}}, {"settings": key})
    slow, busy, same = (
        sim.collective("all_reduce", 2**33, TWO_NODES, algorithm=["ring"], **own) for own in ways
    )
    assert _seconds(busy) == pytest.approx(_seconds(slow))
    assert _seconds(same) == _seconds(busy)
    job = sim.load("megatron-39b", {"straggler": [{"link": "node1.nic2", "traffic": "12 GB/s"}]})
    assert sim.run(job).step_time > sim.run("megatron-39b").step_time


def _seconds(times: CollectiveTimes) -> list[float]:
    return [row.seconds for row in times.rows]


def test_a_late_rank_holds_up_a_library_and_messages_no_more_than_they_wait_for_it() -> None:
    late = 1e-3
    usual = sim.collective("all_reduce", 2**26, TWO_NODES, algorithm=["ring"], messages=True)
    held = sim.collective(
        "all_reduce", 2**26, TWO_NODES, algorithm=["ring"], messages=True, late={3: "1 ms"}
    )
    assert held.late == {3: late}
    for before, after in zip(usual.rows, held.rows, strict=True):
        assert before.seconds < after.seconds
        if after.protocol == "messages":
            assert after.seconds < before.seconds + late  # what others have sent has arrived
        else:
            assert after.seconds == pytest.approx(before.seconds + late)
    assert "rank 3 1.00 ms late" in str(held)


def test_places_apart_use_the_network_and_random_ones_are_those_of_the_seed() -> None:
    """Two GPUs of one node have NVLink; one of each of two nodes has a NIC."""
    whole = topology.load("dgx-a100-hdr")
    near = sim.collective("all_gather", 2**28, whole, placement=[0, 1])
    far = sim.collective("all_gather", 2**28, whole, placement=[0, 8])
    assert far.choice.seconds > 3 * near.choice.seconds
    assert set(far.busy) == {"nic"}
    assert set(near.busy) == {"port"}
    again = [
        sim.collective("all_reduce", 2**28, whole, gpus=16, placement=word).places
        for word in ("random:1", "random:1", "random:2")
    ]
    assert again[0] == again[1] != again[2]
    ranks = sim.collective("all_reduce", 2**28, whole, gpus=16, placement="random")
    packed = sim.collective("all_reduce", 2**28, whole, gpus=16)
    assert ranks.gpus == packed.gpus == 16
    assert ranks.choice.seconds != packed.choice.seconds


def test_a_random_order_of_the_same_gpus_matters_to_messages_alone() -> None:
    """One NIC a node: a ring in order crosses it once, one of random places several times."""
    one = topology.load("dgx-a100-hdr", {"network.nics": 1}).with_gpus(16)
    near, mixed = (
        sim.collective("all_reduce", 2**28, one, algorithm=["ring"], messages=True, placement=order)
        for order in ([], "random")
    )
    assert sorted(mixed.places) == list(range(16))
    (played,), (shuffled,) = (
        [row.seconds for row in times.rows if row.protocol == "messages"] for times in (near, mixed)
    )
    assert shuffled > 1.5 * played
    assert _seconds(near)[:-1] == pytest.approx(_seconds(mixed)[:-1])


def test_settings_are_those_of_a_scenario() -> None:
    slow = sim.collective(
        "all_reduce", 2**30, "dgx-a100-hdr", gpus=64, settings="network.bandwidth=50 Gb/s"
    )
    usual = sim.collective("all_reduce", 2**30, "dgx-a100-hdr", gpus=64)
    assert slow.bound == pytest.approx(usual.bound / 4)
    assert slow.to_dict()["inputs"]["change"] == {"network.bandwidth": "50 Gb/s"}


def test_messages_of_one_ring_take_its_closed_form() -> None:
    node = topology.load("dgx-a100-hdr").with_gpus(8)
    (played,) = (
        row
        for row in sim.collective("all_gather", 2**33, node, messages=True).rows
        if row.protocol == "messages"
    )
    closed = 7 / 8 * 2**33 / node.capacity(("port-up", 0)) + 7 * 2 * node.latency(("port-up", 0))
    assert played.seconds == pytest.approx(closed, rel=1e-9)


def test_the_picture_has_a_curve_for_each_algorithm_and_protocol() -> None:
    times = sim.collective("all_reduce", SIZES, TWO_NODES)
    curves = {(row.algorithm, row.protocol) for row in times.rows}
    drawn = figure(times)
    assert len(drawn.axes[0].lines) == len(curves) + 2  # the choice, and the bound
    titles = [axes.get_title() for axes in drawn.axes]
    assert any(title.startswith("The network") for title in titles)
    nics = [line for axes in drawn.axes for line in axes.lines if line.get_gid() == "nic"]
    assert nics
    (shade,) = {line.get_color() for line in nics}
    assert shade != NIC_LINE


def test_of_one_size_the_picture_has_a_bar_for_each_algorithm_and_protocol() -> None:
    times = sim.collective("all_reduce", 2**30, TWO_NODES)
    axes = figure(times).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [1e-9 * row.busbw for row in times.rows]
    dark = [bar.get_alpha() == 1.0 for bar in axes.patches]
    assert dark == [row.chosen for row in times.rows]
    assert sum("chosen" in text.get_text() for text in axes.texts) == 1


def test_cables_that_carry_nothing_are_not_drawn_as_busy() -> None:
    """Eight nodes of a dragonfly use the cables among their four routers alone."""
    times = sim.collective("all_to_all", 2**20, "example-dragonfly", gpus=64)
    cables = {name for name in times.busy if name.startswith("edge ")}
    assert len(cables) == 4 * 3
    drawn = [
        line
        for axes in figure(times).axes
        for line in axes.lines
        if str(line.get_gid()).startswith("edge ")
    ]
    idle = {line.get_gid() for line in drawn if line.get_color() == drawn[-1].get_color()}
    assert {"edge 0-1", "edge 2-3"}.isdisjoint(idle)
    assert len(drawn) - len(idle) == 6


def test_the_ways_around_a_torus_have_their_own_load() -> None:
    """Two neighbours over the edge of the drawing: the dotted ends between them, and no others."""
    drawing = figure(sim.collective("all_gather", 2**20, "example-torus-2d", placement=[0, 3]))
    cables = [one for axes in drawing.axes for one in axes.lines if "edge" in str(one.get_gid())]
    colours = {str(one.get_gid()): one.get_color() for one in cables}
    busy = {name for name, colour in colours.items() if colour != colours["edge 5-6"]}
    assert busy == {"edge 0-3", "edge 3-0"}


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "curve.png"
    words = ["collective", "all_reduce", "--topology", "dgx-a100-hdr", "--gpus", "8"]
    result = CliRunner().invoke(main, [*words, "--sizes", "48000", "--picture", str(picture)])
    assert result.exit_code == 0, result.output
    assert "\n  48000 " in result.stdout
    assert "busbw" in result.stdout
    assert picture.stat().st_size > 10_000


def test_a_trace_has_every_message_and_ends_with_the_last(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    words = ["collective", "all_reduce", "1 MiB", "dgx-a100-hdr", "--gpus", "8", "--messages"]
    result = CliRunner().invoke(main, [*words, "--algorithm", "ring", "--trace", str(path)])
    assert result.exit_code == 0, result.output
    events = json.loads(path.read_text())["traceEvents"]
    sends = [one for one in events if one.get("cat") == "kernel"]
    assert len(sends) == 8 * 14
    played = float(result.stdout.split("messages")[1].split()[0])
    assert max(one["ts"] + one["dur"] for one in sends) == pytest.approx(played, abs=0.2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["all_reduse", "1 MiB", "dgx-a100-hdr"], "no collective named"),
        (["all_reduce", "dgx-a100-hdr"], "KIND SIZE TOPOLOGY"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--sizes", "1KiB..2KiB"], "KIND SIZE TOPOLOGY"),
        (["all_reduce", "dgx-a100-hdr", "--sizes", "2KiB..1KiB"], "smaller size first"),
        (["all_reduce", "dgx-a100-hdr", "--sizes", "2 kilos"], "2 kilos"),
        (["all_reduce"], "KIND SIZE TOPOLOGY"),
        (["all_reduce", "many", "dgx-a100-hdr"], "many"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--algorithm", "rink"], "ring"),
        (
            ["all_reduce", "1 MiB", "dgx-a100-hdr", "--slow", "node0.nic0"],
            "write it like node3.nic0=2",
        ),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--slow", "node99999.nic0=2"], "no such link"),
        (["point_to_point", "1 MiB", "dgx-a100-hdr", "--gpus", "8"], "use 2"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--gpus", "1"], "use more"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--slow", "node0.nic0=0"], "positive"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--late", "3"], "write it like 3="),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--late", "a=1 s"], "no rank"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--gpus=8", "--late", "8=1 s"], "no such rank"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--late", "3=-1 s"], "no delay"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--late", "3=1 GB"], "not in s"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--traffic", "node0.nic0=1 s"], "Gb/s"),
        (
            ["all_reduce", "1 MiB", "dgx-a100-hdr", "--traffic", "node0.nic0=1 Tb/s"],
            "state less traffic",
        ),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--placement", "rand"], "random:SEED"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--placement", "0,0"], "twice"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--placement", "0,99999"], "no GPU 99999"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--placement", "0,8", "--gpus=4"], "2 places"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--set", "plan.tp=2"], "has no plan"),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--set", "model.seq=2"], "has no model"),
        (
            ["all_reduce", "1 MiB", "dgx-a100-hdr", "--set", "straggler=[{rank=1, factor=2}]"],
            "computes nothing",
        ),
        (["all_reduce", "1 MiB", "dgx-a100-hdr", "--set", "straggler=5"], "straggler"),
    ],
)
def test_mistakes_are_one_line(words: list[str], told: str) -> None:
    result = CliRunner().invoke(main, ["collective", *words])
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (
            {"gpus": 10**9, "settings": ["topology.gpus=1000000000"]},
            "1,000,000,000 GPUs would take about",
        ),
        (
            {"gpus": 8, "placement": "random", "settings": ["topology.gpus=8000000000000"]},
            "in any order",
        ),
    ],
)
def test_what_would_take_hours_says_so_first(asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        sim.collective("all_reduce", 2**20, "dgx-a100-hdr", **asked)
