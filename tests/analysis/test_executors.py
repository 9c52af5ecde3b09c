"""Search, validation and sweeps ask the same workers, here or on a cluster."""

from collections.abc import Iterator

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
