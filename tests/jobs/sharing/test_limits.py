"""What would take hours is refused before it begins; what a task costs is known beforehand."""

from typing import Any, Literal

import pytest

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.jobs.sharing.learning.tasks import task_of
from sim.jobs.sharing.limits import COSTS
from sim.jobs.sharing.methods.all_reduce import AllReduce
from sim.jobs.sharing.setup import assemble
from sim.jobs.sharing.tables import TASKS, Learning, Recovery, StragglerCause
from sim.jobs.sharing.workload import Workload
from sim.variability.laws import Constant
from tests.jobs.sharing.pools import hosts, setup, work

FLEET = Workload.plain(1e-4, 1.0)  # whose steps take no time to speak of
FLICKER = StragglerCause(law=Constant(factor=2.0), links=("node0.nic0",), interval=1e-9)
LONG: dict[str, tuple[dict[str, Any], str]] = {
    "many shards": (
        {"method": "parameter_server", "mode": "async", "workers": 4000, "shards": 1000},
        "80,000 updates would take about 14 min",
    ),
    "a hundred thousand workers": (
        {"method": "parameter_server", "mode": "async", "workers": 100_000, "steps": 1000},
        "100,000,000 updates would take about",
    ),
    "links that flicker": (
        {"method": "all_reduce", "straggler": (FLICKER,)},
        "changes of links would take about 17 h",
    ),
    "clients that never stay": (
        {"method": "federated", "online": 1e-3, "offline": 1e3},
        "3.7e-44 of them come to an end",
    ),
    "clients that leave while they send": (
        {
            "method": "federated",
            "online": 0.2,
            "offline": 1.0,
            "workload": Workload.plain(1e-4, 6.25e8),
        },
        "2.1e-09 of them come to an end",
    ),
    "everyone beside everyone": (
        {"method": "gossip", "graph": "complete", "workers": 1000},
        "20,000 updates would take about 5.5 h",
    ),
    "a round of gossip without end": (
        {"method": "gossip", "period": 10**6},
        "4,000,000 updates would take",
    ),
    "a round without end": (
        {"method": "local_sgd", "period": 10**6},
        "4,000,000 updates would take about 20 min",
    ),
    "a replica on every server": (
        {"method": "parameter_server", "shards": 401, "recovery": Recovery(replicas=400)},
        "80 updates would take about 11 min",
    ),
    "hardly anybody there": (
        {"method": "federated", "online": 1e-3, "offline": 1e6, "steps": 2000, "workload": FLEET},
        "8,000 updates would take",
    ),
    "a time without end": (
        {"method": "all_reduce", "until": 1e9},
        "40,000,000,000 updates would take",
    ),
    "a wide perceptron": (
        {"method": "all_reduce", "learning": Learning(task="perceptron", size=10**6)},
        "80 updates of 4,000,001 weights would take",
    ),
    "a time of steps that take none": (
        {"method": "all_reduce", "until": 1.0, "workload": work(layers=())},
        "so no number of steps is enough",
    ),
}


@pytest.mark.parametrize("case", LONG)
def test_what_would_take_long_is_refused_with_an_estimate(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.config.limit.refuse_large", lambda *_: None)
    options, said = LONG[case]
    with pytest.raises(InputError) as refused:
        setup(**options)
    assert said in str(refused.value)


def test_a_period_counts_only_where_a_method_says_that_it_is_a_round() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Mine(AllReduce):
        period: int | Literal["never"] = "never"

    assert assemble(Mine(workers=2, steps=1), hosts(), work()).plan.round_steps == 1


@pytest.mark.parametrize("task", [task for task in TASKS if task != "none"])
def test_the_weights_that_are_counted_beforehand_are_those_of_the_task(task: str) -> None:
    if task in ("digits", "residual", "characters"):
        pytest.importorskip("torch", reason="a torch module")
    for size in (3, 6):
        made = task_of(Learning(task=task, size=size), 2, batch=4, seed=0)
        assert made.start.size == COSTS[task].weights(size)


def test_every_task_has_a_cost() -> None:
    assert COSTS.keys() == set(TASKS)
