"""Sweeps: every point has its row, interrupted work continues, and no old answer is given."""

import os
import pickle
import pickletools
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

import sim
from sim import run
from sim.analysis import executors
from sim.analysis.sweeps import sweep, table
from sim.analysis.sweeps.answer import Sweep
from sim.analysis.sweeps.points import axis, points, rows
from sim.analysis.sweeps.store import Store
from sim.config import catalog, reads
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.kind import load
from sim.results.answer import Figures
from sim.scenario.setup import load_topology

JOB = """
model = "gpt2-124m"
topology = "dgx-a100-hdr"
stack = "megatron-lm-2022"
gpus = 8

[plan]
tp = 2
pp = 2
microbatch = 2
global_batch = 48
precision = "fp16"
"""
GRID = [{"plan.tp": tp, "network.bandwidth": f"{b} Gb/s"} for tp in (1, 2, 3) for b in (100, 200)]
DOTTED = "--vary=plan.microbatch=1,2,3,4", "--vary=plan.global_batch=240,480,720"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a scenario and a model of their own, where the commands run."""
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "models").mkdir()
    shutil.copy(catalog.find("models", "gpt2-124m"), tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def swept(**options: Any) -> pd.DataFrame:
    return sweep.sweep("job.toml", GRID, jobs=1, **options)


def answers(frame: pd.DataFrame) -> str:
    """The bytes of a table, wall-clock columns aside."""
    return frame.drop(columns=table.WALL).to_csv()


def assert_alike(first: pd.DataFrame, second: pd.DataFrame) -> None:
    """Tables agree but for wall-clock columns and the order of sums over points."""
    frames = (frame.drop(columns=table.WALL) for frame in (first, second))
    pd.testing.assert_frame_equal(*frames, rtol=1e-12, atol=0)


# Points.


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1,2", (1, 2)),
        ("a=1..3", (1, 2, 3)),
        ("a=0..1:3", (0.0, 0.5, 1.0)),
        ("a=8..64:3", (8, 36, 64)),
        ("a=none,full", ("none", "full")),
        ("a=[1,2],[3]", ((1, 2), (3,))),
        ("a=100..800Gb/s:3", ("100 Gb/s", "450 Gb/s", "800 Gb/s")),
        ("a=2,2", (2,)),
    ],
)
def test_values_read_as_written(text: str, values: tuple[Any, ...]) -> None:
    assert axis(text).values == values


@pytest.mark.parametrize("text", ["a", "a=", "a=1,,2", "a=3..1", "a=1..2:0", "a=1.5..2", "=1"])
def test_a_range_that_is_empty_or_unclear_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--vary"):
        axis(text)


def test_a_grid_has_all_combinations_and_zip_has_pairs() -> None:
    axes = [axis("a=1,2,3"), axis("b=4,5,6")]
    assert len(points(axes)) == 9
    assert points(axes, zipped=True) == [{"a": 1, "b": 4}, {"a": 2, "b": 5}, {"a": 3, "b": 6}]
    with pytest.raises(InputError, match="unequal numbers"):
        points([axes[0], axis("b=4")], zipped=True)


def test_rows_of_a_csv_are_points_and_empty_cells_keep_the_scenario(folder: Path) -> None:
    (folder / "points.csv").write_text("plan.tp,network.bandwidth\n2,100 Gb/s\n4,\n")
    assert rows(folder / "points.csv") == [
        {"plan.tp": 2, "network.bandwidth": "100 Gb/s"},
        {"plan.tp": 4},
    ]


# The table.


def test_a_row_is_what_a_run_says_with_every_input_and_metric(folder: Path) -> None:
    frame = swept()
    alone = run(load("job.toml", GRID[2]))
    row = frame.loc[2]
    assert row["step_time"] == alone.step_time
    assert row["memory.total"] == alone.memory_per_gpu["total"]
    for bound in ("low", "expected", "high"):
        assert row[f"step_time_{bound}"] == getattr(alone, f"step_time_{bound}")
        assert f"step_time_{bound}" in str(Sweep(scenario="job.toml", frame=frame))
    inputs = ["model", "topology", "stack", "gpus", "plan.pp", "plan.dp", "network.bandwidth"]
    assert row[inputs].notna().all()
    seconds = [name for name in frame.columns if name.startswith("seconds.")]
    assert row[seconds].sum() == pytest.approx(row["step_time"])


def test_points_that_do_not_divide_or_fit_are_kept_with_their_reason(folder: Path) -> None:
    grid = [{"plan.tp": 3}, {"device.memory": "2 GiB"}, {"plan.tp": 2}]
    frame = sweep.sweep("job.toml", grid, jobs=1)
    assert list(frame["valid"]) == [False, False, True]
    assert "does not divide" in frame["reason"][0]
    assert "GiB, but has" in frame["reason"][1]
    assert frame["step_time"].isna().tolist() == [True, False, False]


def test_sizes_that_do_not_suit_another_kind_of_job_are_a_point_without_figures() -> None:
    few = {"generation.prompts": 8}
    swept = sim.sweep("qwen3-32b-answers", {"generation.layout.tp": [3, 8]}, settings=few, jobs=1)
    assert swept.frame["valid"].tolist() == [False, True]
    shown = str(swept)
    assert "tp = 3 does not divide heads = 64" in shown
    assert "tokens_per_second" in shown


def test_values_of_a_table_that_do_not_suit_one_another_are_a_point_without_figures() -> None:
    few = {"sharing.steps": 2}
    swept = sim.sweep("ps-bsp", {"sharing.mode": ["bsp", "async"]}, settings=few, jobs=1)
    assert swept.frame["valid"].tolist() == [True, False]
    assert "would have no effect" in swept.frame["reason"][1]
    with pytest.raises(InputError, match="would have no effect"):
        sim.sweep("ps-bsp", {"sharing.mode": ["async"]}, settings=few, jobs=1)
    with pytest.raises(InputError, match="rign"):
        sim.sweep("gossip-d-psgd", {"sharing.graph": ["rign", "ring"]}, settings=few, jobs=1)


def test_a_faster_network_is_never_slower(folder: Path) -> None:
    grid = points([axis("network.bandwidth=25..400Gb/s:4")])
    times = sweep.sweep("job.toml", grid, jobs=1)["step_time"]
    assert (times.diff().dropna() <= 1e-12).all()


def test_samples_add_the_distribution_of_the_step(folder: Path) -> None:
    frame = sweep.sweep("job.toml", [{"plan.tp": 2}], samples=50, jobs=1)
    row = frame.loc[0]
    assert row["step_time"] < row["samples.mean"] < row["samples.p95"] <= row["samples.p99"]
    assert row["samples.loss"] == pytest.approx(row["samples.mean"] - row["step_time"], rel=0.05)


# The store.


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("asked")


def test_a_repeated_sweep_answers_from_the_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = swept(store=folder / "runs.db")
    monkeypatch.setattr("sim.questions.figures", never)
    again = swept(store=folder / "runs.db")
    pd.testing.assert_frame_equal(first, again)  # wall-clock columns too


def test_the_command_keeps_what_it_finds_unless_told_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["sweep", "job.toml", "--vary=plan.tp=1,2", "--jobs=1", "--json"]
    assert CliRunner().invoke(main, [*words, "--no-store"]).exit_code == 0
    assert not (folder / "sweeps.db").exists()
    first = CliRunner().invoke(main, words)
    monkeypatch.setattr("sim.questions.figures", None)  # computing again fails
    assert CliRunner().invoke(main, words).stdout == first.stdout


@pytest.mark.parametrize("changed", ["model", "scenario", "topology", "program"])
def test_a_changed_input_is_never_answered_with_an_old_result(
    changed: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = swept(store=folder / "runs.db")
    if changed == "model":
        path = folder / "models" / "gpt2-124m.toml"
        path.write_text(path.read_text().replace("ffn = 3072", "ffn = 6144"))
    elif changed == "scenario":
        (folder / "job.toml").write_text(JOB.replace("fp16", "bf16"))
    elif changed == "topology":
        (folder / "topologies").mkdir()
        own = catalog.find("topologies", "dgx-a100-hdr").read_text()
        (folder / "topologies" / "dgx-a100-hdr.toml").write_text(own.replace("300 GB/s", "30 GB/s"))
    else:
        monkeypatch.setattr(sweep, "program_version", lambda: "another")
        another = run("gpt2-one-gpu")
        figures = Figures(another.columns, another.misfit)
        monkeypatch.setattr("sim.questions.figures", lambda setups: [figures for _ in setups])
    after = swept(store=folder / "runs.db")
    assert len(after) == len(before)
    assert answers(after) != answers(before)
    fresh = swept()
    assert answers(after) == answers(fresh)


def test_the_users_own_measured_runs_are_an_input_too(folder: Path) -> None:
    ((_, _, seen),) = sweep.answers(sweep.SweepTask(scenario="job.toml", points=[("", {})]))
    (folder / "topologies" / "validated").mkdir(parents=True)
    (folder / "topologies" / "validated" / "mine.toml").write_text("spreads = []\n")
    assert not reads.holds(seen)


def command(folder: Path, store: str, out: str) -> subprocess.Popen[bytes]:
    words = ["sweep", "job.toml", *DOTTED, "--jobs=1", f"--store={store}", f"--out={out}"]
    call = [sys.executable, "-m", "sim", *words]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(call, cwd=folder, stdout=quiet, stderr=quiet, start_new_session=True)


def rows_in(store: Path) -> int:
    """How many rows a store has by now, none where it is not there yet."""
    if not store.exists():
        return 0
    with closing(sqlite3.connect(store, timeout=60)) as db:
        tables = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'results'").fetchone()
        return int(db.execute("SELECT count(*) FROM results").fetchone()[0]) if tables[0] else 0


@pytest.mark.long
def test_killed_at_random_moments_it_ends_with_the_undisturbed_table(folder: Path) -> None:
    assert command(folder, "whole.db", "whole.csv").wait(120) == 0
    chance = random.Random(5)
    for _ in range(3):
        hurt = command(folder, "hurt.db", "hurt.csv")
        kept = rows_in(folder / "hurt.db") + chance.randrange(4)
        while hurt.poll() is None and rows_in(folder / "hurt.db") < kept:
            pass
        os.killpg(hurt.pid, signal.SIGKILL)
        hurt.wait()
    assert command(folder, "hurt.db", "hurt.csv").wait(120) == 0
    tables = [pd.read_csv(folder / name, index_col=0) for name in ("whole.csv", "hurt.csv")]
    assert answers(tables[0]) == answers(tables[1])


@pytest.mark.long
def test_two_sweeps_on_one_store_at_once_agree(folder: Path) -> None:
    names = ("first.csv", "second.csv")
    both = [command(folder, "runs.db", name) for name in names]
    assert [sweeping.wait(120) for sweeping in both] == [0, 0]
    first, second = (pd.read_csv(folder / name, index_col=0) for name in names)
    assert answers(first) == answers(second)


# Executors.


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are started however little they gain, as many as are asked for."""
    monkeypatch.setattr(sweep, "_START", 0.0)
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)


@pytest.mark.usefixtures("processes")
def test_one_process_and_two_give_the_same_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, tasks_of = [], sweep._of_tasks

    def of_tasks(tasks: Any, jobs: Any) -> Any:
        asked.append(jobs)
        return tasks_of(tasks, jobs)

    monkeypatch.setattr(sweep, "_of_tasks", of_tasks)
    assert_alike(sweep.sweep("job.toml", GRID, jobs=2), swept())
    assert asked.count(2) >= 2


def test_a_few_quick_points_start_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_START", 1e9)
    monkeypatch.setattr("joblib.Parallel", never)
    assert_alike(sweep.sweep("job.toml", GRID, jobs=2), swept())


@pytest.mark.long
def test_a_dask_cluster_gives_the_same_answers_though_a_worker_dies_at_work(folder: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="extra `cluster` is not installed")
    grid = points([axis("plan.microbatch=1..4"), axis("plan.global_batch=48..96")])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as workers:
        victim = next(iter(workers.workers.values())).pid
        address = workers.scheduler_address
        killed_at: list[int] = []
        killer = threading.Thread(target=kill_later, args=(victim, "runs.db", killed_at))
        killer.start()
        frame = sweep.sweep("job.toml", grid, jobs=address, store=folder / "runs.db")
        killer.join()
    assert killed_at
    assert 0 < killed_at[0] < len(grid)
    assert_alike(frame, sweep.sweep("job.toml", grid, jobs=1))


def test_a_dask_cluster_with_tls_answers_those_who_have_its_certificate(folder: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="extra `cluster` is not installed")
    dask = pytest.importorskip("dask")
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout",
         "key.pem", "-out", "ca.pem", "-subj", "/CN=127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    files = {"cert": str(folder / "ca.pem"), "key": str(folder / "key.pem")}
    tls = {"ca-file": files["cert"]} | {
        f"{who}.{what}": path
        for who in ("client", "scheduler", "worker")
        for what, path in files.items()
    }
    keys = {f"distributed.comm.tls.{key}": value for key, value in tls.items()}
    with (
        dask.config.set({**keys, "distributed.comm.require-encryption": True}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1",
            protocol="tls", security=distributed.security.Security(), processes=False,
        ) as workers,
    ):  # fmt: skip
        address = workers.scheduler_address
        assert address.startswith("tls://")
        secured = sweep.sweep("job.toml", GRID, jobs=address)
        with (
            dask.config.set(dict.fromkeys(keys)),
            pytest.raises(InputError, match="no cluster answers there"),
        ):
            sweep.sweep("job.toml", GRID, jobs=address)
    assert_alike(secured, swept())


def test_what_is_sent_to_a_cluster_names_only_what_the_package_defines(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []

    def cluster(work: Any, tasks: Any, *, address: str) -> Any:
        sent.append(pickle.dumps((work, list(tasks)), protocol=0))
        return map(work, tasks)

    monkeypatch.setattr(executors, "cluster", cluster)
    sweep.sweep("job.toml", GRID[:1], jobs="tcp://host:8786")
    codes = [(code.name, found) for code, found, _ in pickletools.genops(sent[0])]
    named = {str(found) for name, found in codes if name == "GLOBAL"}
    plain = {"copy_reg _reconstructor", "__builtin__ object", "functools partial"}
    assert any(name.startswith("sim.analysis.sweeps") for name in named)
    assert {name for name in named if not name.startswith("sim.")} <= plain


def kill_later(pid: int, store: str, killed_at: list[int]) -> None:
    """Kill a process once the first results are stored."""
    while not Path(store).exists():
        time.sleep(0.01)
    with Store(Path(store)) as kept:
        while not len(kept):
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        killed_at.append(len(kept))


def test_files_that_change_meanwhile_end_the_sweep_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(setups: Sequence[Any]) -> list[Figures]:
        monkeypatch.setattr(sweep, "program_version", lambda: "another")
        return [Figures({}, "") for _ in setups]

    monkeypatch.setattr("sim.questions.figures", changed)
    call = ["sweep", "job.toml", "--vary=plan.tp=1,2", "--jobs=1"]
    result = CliRunner().invoke(main, call)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "another program" in result.stderr


# Bad input.


@pytest.mark.parametrize(
    "words",
    [
        ["--vary=plan.tpp=1,2"],
        ["--vary=network.bandwith=1 Gb/s"],
        ["--vary=warp.factor=9"],
        ["--vary=plan.tp=wide"],
        ["--vary=plan.tp="],
        ["--vary=plan.tp=4..2"],
        ["--vary=plan.tp=1", "--vary=plan.tp=2"],
        ["--vary=plan.tp=1,2", "--vary=plan.pp=1", "--zip"],
        ["--vary=model=gpt9"],
        ["--csv=nowhere.csv"],
        ["--vary=plan.tp=1", "--out=table.doc"],
        ["--vary=plan.tp=1", "--store=job.toml"],
        ["--vary=plan.tp=1", "--jobs=nonsense://x"],
        [],
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_line_before_any_work(
    words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("worked")

    monkeypatch.setattr("sim.questions.figures", never)
    result = CliRunner().invoke(main, ["sweep", "job.toml", "--jobs=1", *words])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: ")


def test_a_full_disk_is_one_line_and_what_was_stored_answers_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "_open", full_after_three(Store._open))
    call = ["sweep", "job.toml", *DOTTED, "--jobs=2", "--store=runs.db"]
    result = CliRunner().invoke(main, call)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "full" in result.stderr
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    with Store(folder / "runs.db") as kept:
        assert len(kept) > 0
    assert CliRunner().invoke(main, call).exit_code == 0


def full_after_three(opened: Any) -> Any:
    """A store on a disk with room for three pages more."""

    def open_(store: Store) -> None:
        opened(store)
        pages = store._number("PRAGMA page_count")
        store._db.execute(f"PRAGMA max_page_count = {pages + 3}")

    return open_


def test_the_table_is_written_as_csv_and_as_parquet(folder: Path) -> None:
    pytest.importorskip("pyarrow", reason="extra `parquet` is not installed")
    frame = swept()
    table.write(frame, folder / "table.csv")
    table.write(frame, folder / "table.parquet")
    stored = pd.read_parquet(folder / "table.parquet")
    assert stored["step_time"].tolist()[:4] == frame["step_time"].tolist()[:4]
    assert len(pd.read_csv(folder / "table.csv")) == len(frame)


def test_keys_that_depend_on_one_another_are_swept_together() -> None:
    """Neither a value of `oversubscription` nor one of `nodes_per_pod` stands without the other."""
    grid = points([axis("network.nodes_per_pod=1,2"), axis("network.oversubscription=2,4")])
    frame = sweep.sweep("megatron-1.7b", grid, jobs=1)
    assert frame["valid"].all()
    with pytest.raises(InputError, match="nodes_per_pod"):
        sweep.sweep("megatron-1.7b", points([axis("network.oversubscription=2,4")]), jobs=1)


def test_any_column_of_numbers_can_be_drawn_and_another_is_refused() -> None:
    swept = sim.sweep("megatron-1.7b", {"plan.microbatch": [1, 2]}, jobs=1)
    (axes,) = swept.plot("bubble_fraction").axes
    assert axes.get_title("left") == "bubble_fraction"
    (drawn,) = axes.lines
    assert drawn.get_ydata().tolist() == swept.frame["bubble_fraction"].tolist()
    with pytest.raises(InputError, match="did you mean 'bubble_fraction'"):
        swept.plot("bubble_fractions")


def test_a_sweep_notes_where_another_schedule_ran_than_is_named() -> None:
    vary = {"plan.schedule": ["interleaved", "1f1b"]}
    swept = sim.sweep("megatron-39b", vary, settings={"plan.interleave": 2}, jobs=1)
    assert swept.frame["pipeline"].tolist() == ["interleaved", "interleaved"]
    assert swept.noted[-1].endswith("the interleaved schedule was played at point 1")


def test_a_value_that_is_wrong_everywhere_is_a_mistake() -> None:
    grid = points([axis("network.nodes_per_pod=1,2"), axis("network.oversubscription=2,zwei")])
    with pytest.raises(InputError, match="oversubscription"):
        sweep.sweep("megatron-1.7b", grid, jobs=1)


def test_a_scenario_of_objects_is_swept_like_its_file_and_stored_by_what_it_says(
    folder: Path,
) -> None:
    vary = {"plan.microbatch": [1, 2], "network.bandwidth": ["100 Gb/s"]}
    of_file = sim.sweep(folder / "job.toml", vary, jobs=1).frame
    job = load("job.toml")
    store = folder / "objects.db"
    first = sim.sweep(job, vary, jobs=1, store=store)
    assert first.scenario == "job"
    assert first.frame["step_time"].tolist() == of_file["step_time"].tolist()
    again = sim.sweep(load("job.toml"), vary, jobs=1, store=store).frame
    assert again.equals(first.frame)  # with the same seconds of simulation: answered from the store
    other = sim.sweep(load(job, {"plan.tp": 1}), vary, jobs=1, store=store).frame
    assert other["plan.tp"].tolist() == [1, 1]
    fast = load_topology(load("job.toml", {"network.bandwidth": "400 Gb/s"}))
    of_objects = sim.Scenario(model="gpt2-124m", topology=fast, plan=job.plan, gpus=8)
    swept = sim.sweep(of_objects, {"plan.microbatch": [1, 2]}, jobs=2, store=store)
    assert swept.valid == 2
    keys = {sweep.fingerprint(one, {}) for one in (job, of_objects, "job.toml")}
    assert len(keys) == 3


def test_a_sweep_of_which_nothing_fits_ends_with_its_own_code(folder: Path) -> None:
    words = ["sweep", "job.toml", "--no-store", "--jobs=1", "--vary", "plan.microbatch=1,2"]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert CliRunner().invoke(main, [*words, "--set", "device.memory=2 GiB"]).exit_code == 3


def test_many_points_are_refused_before_they_are_listed() -> None:
    many = [axis("plan.microbatch=1..2000"), axis("model.seq=1..2000")]
    with pytest.raises(InputError, match="4,000,000 values; give at most"):
        points(many)
    with pytest.raises(InputError, match="70,000 points would take about 12 min"):
        sim.sweep("gpt2-one-gpu", vary={"model.seq": [*range(128, 70_128)]}, jobs=1)
