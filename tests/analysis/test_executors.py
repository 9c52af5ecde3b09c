"""Search, validation and sweeps ask the same workers, here or on a cluster."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import sim
from sim.analysis import executors
from sim.config.errors import InputError


@pytest.fixture
def cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed", reason="extra `cluster` is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as workers:
        yield workers.scheduler_address


@pytest.mark.long
def test_two_workers_of_a_cluster_answer_as_this_process_does(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def best(jobs: executors.Jobs) -> list[tuple[str, float]]:
        found = sim.plan("bert-large", "dgx-a100-hdr", gpus=8, global_batch=64, jobs=jobs, best=3)
        return [(str(layout.plan), layout.step_time) for layout in found.best]

    def errors(jobs: executors.Jobs) -> list[float | None]:
        found = sim.validate("zero_bubble", at_most=2, jobs=jobs)
        return [row.error for table in found.tables for row in table.rows]

    assert best(cluster) == best(1)
    assert errors(cluster) == errors(1)
    monkeypatch.setattr(executors, "program_version", lambda: "another")
    with pytest.raises(InputError, match="another version of sim"):
        errors(cluster)


def test_the_processes_of_an_earlier_call_take_even_a_single_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = list[int]()

    class Pool:
        def __init__(self, n_jobs: int, **_: Any) -> None:
            processes.append(n_jobs)

        def __call__(self, tasks: Iterable[tuple[Any, Any, Any]]) -> list[Any]:
            return [work(*args, **kwargs) for work, args, kwargs in tasks]

    monkeypatch.setattr("joblib.Parallel", Pool)
    assert list(executors.here(abs, [-1], 2)) == [1]
    assert processes == []
    assert list(executors.here(abs, [-1], 2, before=8)) == [1]
    assert processes == [2]


def test_an_answer_that_pickle_cannot_send_is_left_to_joblib() -> None:
    class Own:
        pass

    own = Own()
    assert executors._pickled(own) is own
    assert isinstance(executors._pickled({"seconds": 1.0}), bytes)
