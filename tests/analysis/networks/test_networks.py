"""Clusters under a mix of jobs: hours, orders and bills, against hand counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim import questions
from sim.analysis.networks.networks import Networks
from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware.cluster.bill import Bill
from sim.hardware.cluster.price import Price
from sim.hardware.cluster.topology import load
from sim.interface.cli.main import main

TREE, HASHED = "dgx-a100-hdr", "dgx-a100-hdr: network.routing=ecmp"
JOBS = {"megatron-1.7b": 3.0, "megatron-3.6b": 1.0}
FAT = "a fat tree of QM9700"
PODS = {"gpus": 4096, "network.nodes_per_pod": 32}
SLOW = {"straggler": [{"link": "node0.nic0", "factor": 8.0}]}


@pytest.fixture(scope="module")
def answer() -> Networks:
    return sim.networks([TREE, HASHED, "megascale-a100"], JOBS, failure=SLOW)


def test_hours_are_those_of_the_jobs_by_their_weights(answer: Networks) -> None:
    first, _, other = answer.networks
    assert first.hours == pytest.approx(1.0)
    one, two = (a.expected / b.expected for a, b in zip(other.steps, first.steps, strict=True))
    assert other.hours == pytest.approx(0.75 * one + 0.25 * two)
    assert first.steps[0].seconds == pytest.approx(sim.run("megatron-1.7b").step_time)
    tokens = sum(
        share * step.tokens / step.gpus / step.expected
        for share, step in zip((0.75, 0.25), first.steps, strict=True)
    )
    assert first.tokens_per_dollar == pytest.approx(tokens * 3600 / 5.12)


def test_a_network_that_costs_as_much_as_rent_halves_the_tokens_for_a_dollar() -> None:
    cluster = load(TREE, {"network.radix": 40})
    bill = cluster.network.bill(cluster.nodes)
    each = 5.12 * cluster.gpus * 2 * 8766 / bill.cables  # the rent of two years
    changes = {"topology.price.cable": each, "topology.price.switch": 0.0,
               "topology.price.transceiver": 0.0, "topology.price.network_years": 2.0,
               "network.radix": 40}  # fmt: skip
    network = sim.networks([TREE], ["megatron-1.7b"], settings=changes).networks[0]
    assert network.tokens_per_dollar_with_network == pytest.approx(network.tokens_per_dollar / 2)


def test_what_is_equal_is_played_once_and_counted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    played, told = list[object](), list[str]()
    pace = questions.pace
    monkeypatch.setattr(questions, "pace", lambda setup: played.append(setup) or pace(setup))
    sim.networks([TREE, HASHED], ["megatron-1.7b"], seeds=2, told=told.append,
                 failure={"network.latency": "9 us"})  # fmt: skip
    assert told == ["6 steps to play: 2 networks, 1 job, 2 states, up to 2 hashes"]
    assert len(played) == 6


def test_rows_have_the_names_of_topologies_and_say_what_a_failure_costs(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f'like = "{TREE}"\nname = "rails"\n')
    mine = str(tmp_path / "mine.toml")
    found = sim.networks([mine], ["megatron-1.7b"], failure=SLOW, failing=0.25)
    assert found.networks[0].name == "rails"
    page = str(found)
    assert "longer while failed" in page
    assert "if failed 25.0 % of the time" in page
    assert "in the hours for 25.0 % of the time" in page


def test_a_failure_makes_no_network_faster(answer: Networks) -> None:
    assert all(network.slowdown >= 1.0 - 1e-9 for network in answer.networks)
    assert any(network.slowdown > 1.0 + 1e-6 for network in answer.networks)


def test_a_link_that_flaps_costs_its_share_of_the_time(answer: Networks) -> None:
    flapping = sim.networks([TREE], JOBS, failure=SLOW, failing=0.25).networks[0]
    first = answer.networks[0]
    assert flapping.hours == pytest.approx(0.75 * first.hours + 0.25 * first.failed)
    assert flapping.slowdown == pytest.approx(first.slowdown)
    with pytest.raises(InputError, match="2 is not a share of the time"):
        sim.networks([TREE], JOBS, failure=SLOW, failing=2.0)
    with pytest.raises(InputError, match="give --failure"):
        sim.networks([TREE], JOBS, failing=0.5)


def test_an_order_of_one_machine_is_surer_than_its_intervals(answer: Networks) -> None:
    """Errors that both have in common cancel: half of what is equal, more of what is longer."""
    best = next(network for network in answer.networks if network.name == answer.best)
    assert best.sure is None
    assert best.low < best.hours < best.high
    for network in answer.networks:
        if network is not best:
            assert 0.5 - 1e-9 <= network.sure <= 1.0
    same = sim.networks([TREE, f"{TREE}: network.nics=8"], ["megatron-1.7b"]).networks[1]
    assert (same.sure, same.longer) == (0.5, (0.0, 0.0)), "a network differs from itself by nothing"


def test_an_answer_says_which_job_does_not_fit_and_what_is_odd(answer: Networks) -> None:
    network, (first, second) = answer.networks[0], answer.networks[0].steps
    full = replace(network, fits=False, steps=(first, replace(second, fits=False)))
    text = str(replace(answer, networks=(full,), notes=("tree: 8 GPUs share 3 NICs",)))
    assert f"no: {second.job}" in text
    assert f"no: {first.job}" not in text
    assert "note: tree: 8 GPUs share 3 NICs" in text


@pytest.mark.parametrize(
    ("changes", "odd"),
    [
        ({"network.nics": 3}, ["network.nics: 8 GPUs of a node share 3 NICs unevenly"]),
        ({"network.nodes_per_pod": 7}, ["7 nodes are leaves of 4 and a leaf of 3"]),
        ({"network.nodes_per_pod": 1000, "network.oversubscription": 2}, ["all of 512"]),
        ({"network.nodes_per_pod": 1000}, []),
        ({"network.nodes_per_pod": 32, "network.nics": 4}, []),
    ],
)
def test_unusual_networks_are_noted(changes: dict[str, object], odd: list[str]) -> None:
    tree = {"gpus": 4096, "network.shape": "fat-tree"}
    found = load("dgx-h100-ndr", tree | changes).odd
    assert len(found) == len(odd)
    assert all(part in text for part, text in zip(odd, found, strict=True))


@pytest.mark.parametrize(
    ("changes", "odd"),
    [
        ({"node.bandwidth": "450 Gb/s"}, ["node.bandwidth is 56.2 GB/s; all links of H100 80GB"]),
        ({"node.bandwidth": "900 GB/s"}, ["H100 80GB SXM carry 450 GB/s each way"]),  # both ways
        ({"node.bandwidth": "200 GB/s"}, []),
        ({"network.bandwidth": "400 GB/s"}, ["reach a NIC of 400 GB/s over PCIe, which carries"]),
    ],
)
def test_rates_that_do_not_suit_a_device_are_noted_first(
    changes: dict[str, object], odd: list[str]
) -> None:
    cluster = load("dgx-h100-ndr", changes)
    assert [part in text for part, text in zip(odd, cluster.odd, strict=True)] == [True] * len(odd)


def test_shipped_networks_are_not_odd() -> None:
    assert not [name for name in catalog.names("topologies") if load(name).odd]


def test_the_order_of_jobs_and_the_scale_of_weights_say_nothing(answer: Networks) -> None:
    jobs = {name: 10.0 * JOBS[name] for name in reversed(JOBS)}
    again = sim.networks([TREE, "megascale-a100"], jobs)
    assert again.networks[1].hours == pytest.approx(answer.networks[2].hours)


@pytest.mark.parametrize(
    ("name", "changes", "bill"),
    [
        # 32 nodes a rail: 8 leaves, whose 256 uplinks fill 4 spines; without spines nothing above
        ("dgx-h100-ndr", {"gpus": 256}, Bill(switches=(8, 4), links=256, trunks=256)),
        ("dgx-h100-ndr", {"gpus": 256, "network.spines": False}, Bill(switches=(8,), links=256)),
        ("dgx-h100-ndr", {"gpus": 512}, Bill(switches=(16, 8), links=512, trunks=512)),
        ("dgx-h100-ndr", {"gpus": 512, "network.spines": False},
         Bill(switches=(16, 8), links=512, trunks=512)),
        ("dgx-h100-ndr", {"gpus": 2048}, Bill(switches=(64, 32), links=2048, trunks=2048)),
        # a spine of 64 ports joins 64 leaves: 2,048 NICs; with one more leaf a third tier begins
        (FAT, {"gpus": 2048}, Bill(switches=(64, 32), links=2048, trunks=2048)),
        (FAT, {"gpus": 2080}, Bill(switches=(65, 65, 33), links=2080, trunks=4160)),
        # one NIC a node: 2,048 nodes are 64 leaves; 65,536 are all that three tiers join
        (FAT, {"gpus": 2048, "gpus_per_node": 1, "network.nics": 1},
         Bill(switches=(64, 32), links=2048, trunks=2048)),
        (FAT, {"gpus": 65536}, Bill(switches=(2048, 2048, 1024), links=65536, trunks=131072)),
        (FAT, {"gpus": 131072}, Bill(switches=(4096, 4096, 4096, 2048), links=131072,
                                     trunks=393216)),
        # 4:1: 8 uplinks of each of 64 leaves fill 8 spines
        (FAT, {"gpus": 2048, "network.oversubscription": 4, "network.nodes_per_pod": 4},
         Bill(switches=(64, 8), links=2048, trunks=512)),
        # 16 pods of 8 leaves: 256 cables from them, 256 / o upwards, on spines of 64 ports
        (FAT, {**PODS, "network.oversubscription": 1},
         Bill(switches=(128, 128, 64), links=4096, trunks=8192)),
        (FAT, {**PODS, "network.oversubscription": 2},
         Bill(switches=(128, 96, 32), links=4096, trunks=6144)),
        (FAT, {**PODS, "network.oversubscription": 4},
         Bill(switches=(128, 80, 16), links=4096, trunks=5120)),
        # 128 leaves as pods are more than 64 ports join: 8 uplinks each, 32 leaves a group
        (FAT, {**PODS, "network.oversubscription": 4, "network.nodes_per_pod": 4},
         Bill(switches=(128, 32, 16), links=4096, trunks=2048)),
        # a pod that holds all nodes has nobody above it
        (FAT, {"gpus": 2048, "network.oversubscription": 4, "network.nodes_per_pod": 1000},
         Bill(switches=(64, 32), links=2048, trunks=2048)),
        # 48 leaves a pod: groups of 32 and 16, 32 spines and 16; 1,536 cables, 384 upwards
        (FAT, {"gpus": 3072, "network.oversubscription": 4, "network.nodes_per_pod": 192},
         Bill(switches=(96, 96, 60, 12), links=3072, trunks=6912)),
        # two leaves of a rail are a pod of 64 nodes: 64 cables, 16 upwards, on two spines
        ("dgx-h100-ndr", {"gpus": 2048, "network.oversubscription": 4, "network.nodes_per_pod": 64},
         Bill(switches=(64, 64, 8), links=2048, trunks=2560)),
        # 144 leaves of 32 uplinks need 144 of 32 ports down and 72 cores
        ("dgx-h100-ndr", {}, Bill(switches=(144, 144, 72), links=4608, trunks=9216)),
        ("example-torus-2d", {}, Bill(links=32)),  # two cables for each of 16 chips
    ],
)  # fmt: skip
def test_switches_and_cables_are_counted(name: str, changes: dict[str, object], bill: Bill) -> None:
    tree = {"network.shape": "fat-tree"} if name == FAT else {}
    cluster = load("dgx-h100-ndr", changes | tree) if tree else load(name, changes)
    assert cluster.network.bill(cluster.nodes) == bill
    if tree:  # messages pass as many tiers as are paid for
        assert len(cluster.network.tiers(cluster.nodes)) == len(bill.switches) - 1


@pytest.mark.parametrize("shape", ["fat-tree", "rail-optimised"])
@pytest.mark.parametrize("pod", [4, 7, 32, 48, 256])
def test_a_network_of_less_bandwidth_has_no_more_parts(shape: str, pod: int) -> None:
    changes = {"gpus": 4096, "network.shape": shape, "network.nodes_per_pod": pod}
    parts = []
    for over in (1.0, 1.5, 2.0, 3.3, 4.0, 8.0, 64.0):
        cluster = load("dgx-h100-ndr", changes | {"network.oversubscription": over})
        bill = cluster.network.bill(cluster.nodes)
        parts.append((bill.cables, sum(bill.switches)))
    assert parts == sorted(parts, reverse=True)
    assert [switches for _, switches in parts] == sorted((n for _, n in parts), reverse=True)


def test_a_bill_needs_every_price_of_what_is_there() -> None:
    bill = Bill(switches=(2, 1), links=16, trunks=8)
    price = Price(hour=1.0, switch=1000.0, cable=10.0, transceiver=1.0)
    assert bill.dollars(price) == 3 * 1000.0 + 24 * 10.0 + 48 * 1.0
    assert bill.dollars(Price(hour=1.0, switch=1000.0)) is None
    assert load("h100-grand-teton-roce").network.bill(3072) is None  # no radix is known


@pytest.mark.parametrize("suffix", ["md", "tex", "csv", "json", "txt", "html", "pdf"])
def test_the_table_is_written_in_every_form(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"networks.{suffix}"
    words = ["network", TREE, HASHED, "--job", "megatron-1.7b=2"]
    option = "--picture" if suffix == "pdf" else "--report"
    found = CliRunner().invoke(main, [*words, option, str(path)])
    assert found.exit_code == 0, found.output
    assert path.stat().st_size > 100
    if suffix == "json":
        assert json.loads(path.read_text())["best"] in (TREE, HASHED)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["nonesuch", "--job", "megatron-1.7b"], "no topology named 'nonesuch'"),
        ([TREE, "--job", "nonesuch=2"], "no scenario named 'nonesuch'"),
        ([TREE, "--job", "megatron-1.7b=-1"], "is not positive"),
        ([": network.nics=4", "--job", "megatron-1.7b"], "names no topology"),
        ([TREE, "--job", "two-jobs-one-network"], "several jobs"),
        (["dgx-a100-hdr: network.nix=4", "--job", "megatron-1.7b"], "unknown key 'nix'"),
        ([HASHED, "--job", "megatron-39b", "--limit", "1 s"], "1 job, up to 5 hashes would take"),
    ],
)
def test_what_cannot_be_held_against_each_other_is_refused(words: list[str], fault: str) -> None:
    found = CliRunner().invoke(main, ["network", *words])
    assert found.exit_code == 2
    assert fault in found.stderr
    assert found.stderr.count("\n") == 1


def test_no_clusters_are_refused() -> None:
    with pytest.raises(InputError, match="no clusters or no jobs"):
        sim.networks([], ["megatron-1.7b"])
