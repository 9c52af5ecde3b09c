"""Chakra traces: files read back as written, programs written rank by rank, other files refused."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import run
from sim.config.errors import InputError
from sim.engine.timeline import Timeline
from sim.interface.formats import chakra_program
from sim.interface.outputs import chakra as output
from sim.jobs.traces import chakra_format as chakra
from sim.jobs.traces.chakra_format import COLLECTIVES, Node
from sim.kind import load
from sim.parallel.step import training_step
from sim.scenario.setup import from_scenario

pytest.importorskip("google.protobuf")

NODES = [
    Node(number=0, name="forward", kind="compute", microseconds=300),
    Node(
        number=7,
        name="all-reduce",
        kind="collective",
        after=(0,),
        attributes={"comm_type": 0, "comm_size": 1 << 40, "pg_name": "0", "is_cpu_op": False},
    ),
]
values = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=9), st.floats(allow_nan=False)
)
nodes = st.builds(
    Node,
    number=st.integers(0, 2**64 - 1),
    name=st.text(max_size=200),
    kind=st.sampled_from(["load", "store", "compute", "send", "receive", "collective"]),
    microseconds=st.integers(0, 2**64 - 1),
    after=st.lists(st.integers(0, 99), unique=True).map(sorted).map(tuple),
    attributes=st.dictionaries(st.text(max_size=9), values, max_size=4),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rank.0.et"


@given(written=st.lists(nodes, min_size=1, max_size=20))
def test_a_trace_is_read_back_as_it_was_written(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("chakra") / "rank.0.et"
    chakra.write(path, written)
    assert chakra.read(path) == written


def test_files_have_the_bytes_of_the_schema(path):
    chakra.write(path, [Node(number=3, name="a", kind="compute", microseconds=300)])
    metadata = b"\x0a\x050.0.4"
    node = b"\x08\x03" + b"\x12\x01a" + b"\x18\x04" + b"\x38\xac\x02"
    assert path.read_bytes() == bytes([len(metadata)]) + metadata + bytes([len(node)]) + node


@settings(max_examples=100)
@given(at=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.booleans())
def test_damaged_files_are_read_or_refused_in_a_line(tmp_path_factory, at, value, cut):
    path = tmp_path_factory.mktemp("chakra") / "rank.0.et"
    chakra.write(path, NODES)
    data = bytearray(path.read_bytes())
    at %= len(data)
    path.write_bytes(data[:at] if cut else data[:at] + bytes([value]) + data[at + 1 :])
    with suppress(InputError):
        assert chakra.read(path)


@pytest.mark.parametrize(
    "content",
    [
        *("[1]", '{"0": 5}', '{"0": ["a"]}', '{"0": "01"}', '{"0": []}', '{"0": [0, 0]}'),
        *('{"0": [-1, 0]}', '{"0": [1e400]}', "no", "[" * 9000),
    ],
)
def test_other_lists_of_groups_are_refused(tmp_path, content):
    path = tmp_path / "groups.json"
    path.write_text(content)
    with pytest.raises(InputError, match="does not list the ranks of each group"):
        chakra.read_groups(path)


def test_what_was_written_of_groups_is_read(tmp_path):
    chakra.write_groups(tmp_path / "g.json", {0: (0, 1), 1: (4, 6)})
    assert chakra.read_groups(tmp_path / "g.json") == {"0": [0, 1], "1": [4, 6]}


# --- Programs ------------------------------------------------------------------------------------


def written(tmp_path, **changes):
    """Each rank's nodes, and the groups, of a small Llama."""
    plan = {"plan.tp": 2, "plan.pp": 2, "plan.dp": 2, "plan.zero": 1, "plan.global_batch": 8}
    job = load("llama2-7b-offload", {"gpus": 8, "plan.offload": {}, **plan, **changes})
    setup = from_scenario(job)
    program = training_step(setup.job)
    timeline = run(job).timeline
    paths = chakra_program.write(program, setup.machine, timeline, tmp_path)
    assert [path.name for path in paths] == [*(f"rank.{n}.et" for n in range(8)), "groups.json"]
    ranks = [chakra.read(path) for path in paths[:-1]]
    return ranks, chakra.read_groups(paths[-1]), program


def test_members_of_a_group_run_the_same_collectives_in_one_order(tmp_path):
    ranks, groups, _ = written(tmp_path)
    keys = ("comm_type", "comm_size")
    for group, members in groups.items():
        own = [
            [tuple(n.attributes[key] for key in keys) for n in ranks[member]
             if n.attributes.get("pg_name") == group]
            for member in members
        ]  # fmt: skip
        assert own[0]
        assert all(each == own[0] for each in own)
    assert {(0, 1), (0, 2)} <= set(map(tuple, groups.values()))  # tensor, data parallel


def test_every_message_is_sent_once_and_received_once(tmp_path):
    ranks, _, _ = written(tmp_path)
    ends = ("comm_src", "comm_dst", "comm_tag", "comm_size")
    sent, received = (
        sorted(tuple(n.attributes[key] for key in ends) for rank in ranks for n in rank
               if n.kind == kind)
        for kind in ("send", "receive")
    )  # fmt: skip
    assert sent == received
    assert sent
    for rank, own in enumerate(ranks):
        assert all(n.attributes["comm_src"] == rank for n in own if n.kind == "send")


def test_nodes_wait_for_earlier_ones_and_keep_the_seconds(tmp_path):
    ranks, _, program = written(tmp_path)
    for own in ranks:
        seen = set()
        for node in own:
            assert set(node.after) <= seen
            seen.add(node.number)
    assert len(program.stages) == 2
    flops = [sum(n.attributes.get("num_ops", 0) for n in own) for own in ranks]
    assert flops[0] == pytest.approx(flops[1])
    assert flops[4] > flops[0]  # the output layer
    assert all(sum(n.microseconds for n in own) > 0 for own in ranks)


def test_an_all_gather_is_as_large_as_what_a_rank_puts_in(tmp_path):
    changes = {"plan.tp": 1, "plan.pp": 1, "plan.dp": 8, "plan.zero": 3, "plan.global_batch": 32}
    ranks, groups, _ = written(tmp_path, **changes)
    gathers = [n for n in ranks[0] if n.attributes.get("comm_type") == COLLECTIVES["all_gather"]]
    sums = [n for n in ranks[0] if n.attributes.get("comm_type") == COLLECTIVES["reduce_scatter"]]
    assert groups == {"0": list(range(8))}
    largest = [max(n.attributes["comm_size"] for n in each) for each in (gathers, sums)]
    assert largest[1] == pytest.approx(8 * largest[0], rel=1.01)


def test_a_slow_rank_computes_longer(tmp_path):
    ranks, _, _ = written(tmp_path, straggler=[{"rank": 3, "factor": 2.0}])
    seconds = [sum(n.microseconds for n in own if not n.attributes["is_cpu_op"]) for own in ranks]
    assert seconds[3] == pytest.approx(2 * seconds[2], rel=0.02)


def test_copies_to_the_host_are_stores_and_loads(tmp_path):
    ranks, _, _ = written(tmp_path, **{"plan.offload": {"optimizer": 1.0}})
    kinds = {n.kind for n in ranks[0]}
    assert {"load", "store"} <= kinds


def test_too_many_ranks_are_refused(tmp_path):
    setup = from_scenario(load("llama3-405b-16k"))
    nothing, step = Timeline(roles=(), spans=(), end=0.0), training_step(setup.job)
    with pytest.raises(InputError, match="16,384 ranks would be as many files"):
        chakra_program.write(step, setup.machine, nothing, tmp_path)
    assert json.dumps([p.name for p in tmp_path.iterdir()]) == "[]"


def test_a_recording_is_written(tmp_path):
    """Its mesh has no axis of a pipeline."""
    files = sorted((Path(__file__).parents[2]).rglob("*.json.gz"))
    result = run(load(files[0], {"topology": "dgx-h100-ndr"}))
    output.write(result, tmp_path)
    assert chakra.read(tmp_path / "rank.0.et")
