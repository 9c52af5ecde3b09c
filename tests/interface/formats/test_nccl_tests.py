"""nccl-tests output of several years, as text and JSON, whole and cut short."""

import json
from pathlib import Path

import pytest

from sim.config.errors import InputError
from sim.interface.formats.nccl_tests import read

HEAD = """\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 warmup iters: 5 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid  15147 on   node-a device  0 [0000:0f:00] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid  15148 on   node-b device  0 [0000:0f:00] NVIDIA A100-SXM4-40GB
#                                              out-of-place                       in-place
#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
#        (B)  (elements)                      (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROWS = """\
           8  2  float  sum  -1  27.02  0.00  0.00  0  26.74  0.00  0.00  0
     1048576  262144  float  sum  -1  100.00  10.49  10.49  0  98.00  10.70  10.70  N/A
"""
OLD = """\
$ mpirun -n 16 ./all_reduce_perf -b 8 -e 1G
#                                    out-of-place                    in-place
#  size   count  type  redop    time  algbw  busbw  error    time  algbw  busbw  error
1048576  262144 float    sum   100.0  10.49  19.66  2e-07   101.0  10.38  19.47  2e-07
"""
EACH = """\
# nThread 1 nGpus 8 minBytes 8 maxBytes 8 warmup iters: 1 iters: 5
# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv \
time algbw busbw #wrong \
i_min i_max i_p99 i_cv
1048576 262144 float none -1 10.0 104.86 91.75 0 9.0 11.0 11.0 5.0 \
12.0 87.38 76.46 0 9.0 13.0 13.0 5.0
"""


def written(folder: Path, text: str, name: str = "run.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_both_places_of_a_line_are_read(tmp_path: Path) -> None:
    found = list(read(written(tmp_path, HEAD + ROWS)))
    assert [one.seconds for one in found] == pytest.approx([27.02e-6, 26.74e-6, 1e-4, 98e-6])
    last = found[-1]
    assert (last.operation, last.ranks, last.nodes) == ("all_reduce", 2, 2)
    assert (last.bytes, last.dtype, last.samples) == (1048576, "fp32", 20)


def test_old_output_tells_its_ranks_by_the_bandwidths(tmp_path: Path) -> None:
    first, _ = read(written(tmp_path, OLD))
    assert (first.ranks, first.seconds) == (16, pytest.approx(1e-4))


def test_the_name_of_the_file_tells_the_collective(tmp_path: Path) -> None:
    first, second = read(written(tmp_path, EACH, "my_reduce_scatter.log"))
    assert (first.operation, first.ranks, first.samples) == ("reduce_scatter", 8, 5)
    assert second.seconds == pytest.approx(12e-6)


def test_two_runs_in_one_file_keep_their_own_heads(tmp_path: Path) -> None:
    halved = ROWS.replace("10.49  10.49", "10.49  5.24").replace("10.70  10.70", "10.70  5.35")
    second = HEAD.replace("all_reduce", "alltoall").replace("node-b", "node-a") + halved
    found = list(read(written(tmp_path, HEAD + ROWS + second)))
    assert [(one.operation, one.nodes) for one in found[3:5]] == [
        ("all_reduce", 2),
        ("all_to_all", 1),
    ]


def test_a_cut_line_is_named_after_the_lines_before_it_are_given(tmp_path: Path) -> None:
    path, found = written(tmp_path, (HEAD + ROWS)[:-40]), []
    with pytest.raises(InputError, match=r"run.txt, line 9: has 7 of 13 columns"):
        found.extend(read(path))
    assert len(found) == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (HEAD, "line 7: is where it ends"),
        (ROWS, "line 1: belongs to no known collective"),
        (HEAD.splitlines()[0] + "\n" + ROWS, "line 2: belongs to an unknown number of ranks"),
        ((HEAD + ROWS).replace("27.02", "what?"), "line 8: could not convert"),
        ((HEAD + ROWS).replace("27.02", "nan"), "line 8: nan s is not a valid duration"),
        ("{\n", "line 2: is not JSON"),
        ("{}", "line 1: holds no nccl-tests results"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        list(read(written(tmp_path, text)))


def test_json_gives_the_jitter_of_iterations(tmp_path: Path) -> None:
    place = {"time": 11.0, "alg_bw": 0.09, "bus_bw": 0.05, "nwrong": 0}
    report = {
        "version": 1,
        "args": ["./all_gather_perf", "-J", "x"],
        "config": {"iterations": 20},
        "devices": [{"rank": 0, "hostname": "a"}, {"rank": 1, "hostname": "b"}],
        "results": [
            {
                "size": 1024, "count": 256, "type": "bfloat16", "redop": "none", "root": "-1",
                "out_of_place": place, "in_place": None,
                "out_of_place_per_iter": {"times_us": [9.0, 10.0, 11.0]},
            },
            {"size": 1024, "count": 256, "type": "float", "in_place": place},
        ],
    }  # fmt: skip
    first, second = read(written(tmp_path, json.dumps(report), "r.json"))
    assert (first.operation, first.ranks, first.nodes, first.dtype) == ("all_gather", 2, 2, "bf16")
    assert (first.seconds, first.samples) == (pytest.approx(10e-6), 3)
    assert first.sigma == pytest.approx(0.1, abs=0.002)
    assert (second.seconds, second.samples) == (pytest.approx(11e-6), 20)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1048576 262144 float sum -1 100.0 10.49 10.49 3 98.0 10.70 10.70 0", "3 wrong elements"),
        ("1048576 262144 float sum -1 100.0 99.49 10.49 0 98.0 10.70 10.70 0", "99.49 GB/s where"),
        ("1048576 262144 float sum -1 100.0 10.49 15.49 0 98.0 10.70 10.70 0", "15.49 GB/s on the"),
    ],
)
def test_rows_that_are_wrong_or_do_not_agree_are_no_measurement(
    tmp_path: Path, row: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        list(read(written(tmp_path, HEAD + row)))


@pytest.mark.parametrize("kind", ["gather", "scatter", "sendrecv"])
def test_collectives_of_a_root_are_read(tmp_path: Path, kind: str) -> None:
    head = HEAD.replace("all_reduce_perf", f"{kind}_perf")
    rows = ROWS
    if kind != "sendrecv":  # (n - 1) / n of two ranks
        rows = rows.replace("10.49  10.49", "10.49  5.24").replace("10.70  10.70", "10.70  5.35")
    found = list(read(written(tmp_path, head + rows)))
    assert {one.operation for one in found} == {{"sendrecv": "point_to_point"}.get(kind, kind)}
