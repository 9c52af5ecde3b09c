"""Recommendation models: published sizes, bytes of every exchange, updates of touched rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.collectives.algorithms import direct
from sim.config.schema import validate
from sim.hardware import device, stack
from sim.jobs.sharing.memory import server
from sim.jobs.sharing.methods.all_reduce import AllReduce
from sim.jobs.sharing.methods.parameter_server import ParameterServer
from sim.jobs.sharing.worker_step import worker_step
from sim.model import counts
from sim.model.block import Block, block
from sim.model.execution import TABLES, Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.kernels import Gemm, Kernel, Lag, MemoryBound, Overlap
from sim.model.network import network
from sim.model.operators import kernels_of
from sim.model.reading import load
from sim.model.recommendation import Recommendation, distinct, harmonic
from sim.program.operations import Collective
from tests.jobs.sharing.pools import trained

BATCH, RANKS, WIDTH = 96, 4, 4
SMALL: dict[str, Any] = dict(
    kind="recommendation", dense=5, tables=(50, 4000, 7, 900, 33, 1000, 6, 20), dim=8, lookups=3,
    bottom=(16, 8), top=(32, 1),
)  # fmt: skip


def part(number: int, ranks: int = RANKS, batch: int = BATCH, **changes: Any) -> Block:
    """A part of a small model on one of so many ranks."""
    sharding = Sharding(ep=ranks, experts=("dp",) * (ranks > 1))
    model = network(Recommendation(**{**SMALL, **changes}), "small")
    run = Execution(
        model=model, microbatch=batch, sharding=sharding, precision="fp32", fusion=Fusion()
    )
    return block(f"recommendation:{number}", run)


def calls(items: Any) -> dict[str, Collective]:
    found = (item.collective if isinstance(item, Overlap) else item for item in items)
    return {call.name: call for call in found if isinstance(call, Collective)}


def kernel(items: Any, name: str) -> Kernel:
    return next(one for one in kernels_of(items) if one.name == name)


def test_the_dlrm_of_mlperf_has_24_billion_parameters_in_its_tables_and_two_million_beside():
    model = load("dlrm")
    bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128
    top = 479 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 256 + 256 + 256 + 1
    assert model.source.features == 479  # as --arch-mlp-top begins
    assert counts.parameters(model) == 187_767_399 * 128 + bottom + top
    flops = 2.0 * (bottom + top - 3713) + 2 * 27 * 27 * 128  # biases add, they do not multiply
    assert counts.model_flops(model, 1) / 3 == pytest.approx(flops, rel=1e-9)


@pytest.mark.parametrize("division", ["table", "column"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_pooled_embeddings_and_their_gradients_travel_once_each_way(division, ranks):
    """Batch x tables x dim x width x (n-1)/n leave every rank."""
    own = part(0, ranks, division=division)
    sent = BATCH * 8 * 8 * WIDTH * (ranks - 1) / ranks
    for items, name in ((own.forward, ""), (own.backward, " grad")):
        call = calls(items)[f"pooled embeddings{name}"]
        share = direct.cost("all_to_all", ranks).bytes
        assert (call.kind, call.bytes * share) == ("all_to_all", pytest.approx(sent))


def test_sums_of_divided_rows_are_added_up_on_the_way_for_as_many_times_the_bytes():
    rows, whole = part(0, division="row"), part(0)
    scattered, gathered = (
        calls(rows.forward)["pooled embeddings"],
        calls(rows.backward)["pooled embeddings grad"],
    )
    assert (scattered.kind, gathered.kind) == ("reduce_scatter", "all_gather")
    assert scattered.bytes == gathered.bytes
    assert scattered.bytes == RANKS * calls(whole.forward)["pooled embeddings"].bytes


def test_an_index_goes_to_the_rank_of_its_row_and_with_divided_columns_to_all():
    size = 8.0 * BATCH * 8 * 3
    asked = {way: calls(part(0, division=way).forward)["indices"] for way in ("table", "column")}
    assert (asked["table"].kind, asked["table"].bytes) == ("all_to_all", size)
    assert (asked["column"].kind, asked["column"].bytes) == ("all_gather", RANKS * size)


@pytest.mark.parametrize("division", ["table", "row", "column"])
def test_what_all_ranks_hold_is_the_model(division):
    whole = sum(SMALL["tables"]) * SMALL["dim"]
    for ranks in (1, 2, 4, 8):
        held = part(0, ranks, division=division).parameters[TABLES]
        assert whole / ranks <= held <= whole
        if division == "column" or ranks == 1:
            assert held * ranks == whole
        if division == "row":  # every table rounds up
            assert held * ranks <= whole + 8 * SMALL["dim"] * (ranks - 1)


def test_a_rank_waits_for_the_one_that_has_most_whole_tables():
    even, uneven = (part(0, 4, tables=(10,) * count) for count in (8, 9))
    waits = [
        [item for item in own.forward if type(item).__name__ == "Lag"] for own in (even, uneven)
    ]
    assert not waits[0]
    (lag,) = waits[1]
    assert lag.fullest[0].bytes == pytest.approx(lag.own[0].bytes * 3 / (9 / 4))


def test_updates_cost_what_rows_were_read_not_what_there_are():
    def update(**changes: Any) -> float:
        found = kernel(part(0, **changes).backward, "table update")
        assert isinstance(found, MemoryBound)
        return found.bytes

    twice = tuple(2 * rows for rows in SMALL["tables"])
    assert update(tables=twice) == update()
    assert update(batch=2 * BATCH) == 2 * update()
    job = part(0)
    assert not TABLES.trained  # neither gradients nor states are kept of them
    assert job.trained == job.count - job.parameters[TABLES]


def test_pairs_are_products_of_all_vectors_of_a_sample():
    own = part(1)
    pairs = kernel(own.forward, "pairs")
    assert isinstance(pairs, Gemm)
    assert pairs.flops == 2 * BATCH * 9 * 9 * 8
    back = [one for one in kernels_of(own.backward) if isinstance(one, Gemm)]
    assert sum(one.flops for one in back) == 2 * pairs.flops


def test_on_one_rank_nothing_travels():
    own = part(0, 1)
    assert not calls(own.forward)
    assert not calls(own.backward)


def test_rows_that_samples_touch_are_those_that_even_draws_do():
    model, draws = Recommendation(**SMALL), np.random.default_rng(0)
    for rows, touched in zip(model.tables, model.touched(BATCH), strict=True):
        drawn = [len(set(draws.integers(0, rows, 3 * BATCH))) for _ in range(200)]
        assert touched == pytest.approx(np.mean(drawn), rel=0.02, abs=1.0)
        assert touched <= min(rows, 3 * BATCH)


@pytest.mark.parametrize("skew", [0.5, 1.0, 1.2])
def test_popular_rows_are_met_again_as_in_draws_by_zipfs_law(skew: float) -> None:
    model, draws = Recommendation(**SMALL, skew=skew), np.random.default_rng(1)
    for rows, touched in zip(model.tables, model.touched(BATCH), strict=True):
        chances = np.arange(1, rows + 1) ** -skew
        chances /= chances.sum()
        drawn = [len(set(draws.choice(rows, 3 * BATCH, p=chances))) for _ in range(100)]
        assert touched == pytest.approx(np.mean(drawn), rel=0.03, abs=1.0)


@pytest.mark.parametrize(("rows", "skew"), [(3000, 0.7), (5000, 1.0), (4000, 1.5)])
def test_sums_over_rows_are_those_of_all_terms(rows: int, skew: float) -> None:
    terms = np.arange(1, rows + 1) ** -skew
    assert harmonic(rows, skew) == pytest.approx(terms.sum(), rel=1e-12)
    met = 1.0 - (1.0 - terms / terms.sum()) ** 500
    assert distinct(rows, 500, skew) == pytest.approx(met.sum(), rel=1e-5)


def test_ranks_wait_for_the_one_that_has_the_popular_rows_of_divided_tables():
    def waits(**changes: Any) -> list[Lag]:
        return [item for item in part(0, **changes).forward if isinstance(item, Lag)]

    assert not waits(division="row")
    lags = [waits(division="row", skew=skew)[0] for skew in (0.5, 1.0)]
    rows = SMALL["tables"]
    for lag, skew in zip(lags, (0.5, 1.0), strict=True):
        chances = [np.arange(1, each + 1) ** -skew for each in rows]
        shares = [own[: -(-len(own) // RANKS)].sum() / own.sum() for own in chances]
        more = RANKS * sum(shares) / len(shares) - 1.0
        named = BATCH * 3 * len(rows)
        asked = named * (SMALL["dim"] * WIDTH + 8)  # rows that are read, and their names
        assert lag.fullest[0].bytes - lag.own[0].bytes == pytest.approx(more * asked)
    assert not waits(division="column", skew=1.0)
    (whole,), (even,) = waits(division="table", skew=1.0, tables=(9,) * 9), waits(tables=(9,) * 9)
    assert whole == even  # the same tables, whichever of their rows are popular


def test_less_travels_to_servers_where_rows_are_popular():
    plan = ParameterServer(workers=3, shards=2, optimizer="sgd")
    even = load("dlrm")
    skewed = replace(even, source=replace(even.source, skew=1.05))
    steps = [worker_step(model, 2048, plan, DDP, V100) for model in (even, skewed)]
    assert steps[1].parameters < 0.75 * steps[0].parameters
    assert steps[1].stored == steps[0].stored


V100, DDP = device.load("v100-16gb-sxm"), stack.load("pytorch-ddp")


def test_with_servers_only_touched_rows_travel():
    """Pull and push of every update: rows of the batch and the perceptrons, in fp32."""
    plan = ParameterServer(workers=3, shards=2, optimizer="sgd")
    step = worker_step(load("dlrm"), 256, plan, DDP, V100)
    source = load("dlrm").source
    dense = counts.parameters(load("dlrm")) - sum(source.tables) * 128
    size = 4.0 * (dense + 128 * sum(source.touched(256)))
    assert step.bytes == pytest.approx(size, rel=1e-12)
    assert size < 0.001 * 4 * counts.parameters(load("dlrm"))
    pool = trained("parameter_server", workers=3, steps=4, shards=2, workload=step)
    moved = sum(size for name, size in pool.cluster.carried().items() if name.endswith(".up"))
    assert moved == pytest.approx(2 * size * pool.record.updates * 3, rel=1e-9)


def test_servers_hold_whole_tables_and_workers_the_rows_that_they_pulled():
    plan = ParameterServer(workers=4, shards=8, optimizer="sgd")
    step = worker_step(load("dlrm"), 256, plan, DDP, V100)
    held = server(plan, (step,) * 4, 1 / 8, 0.0)
    assert held.parts["weights"] == pytest.approx(4.0 * 24.036e9 / 8, rel=1e-3)
    assert sum(step.held.values()) < 2**30
    copies = worker_step(load("dlrm"), 256, AllReduce(optimizer="sgd"), DDP, V100)
    assert copies.held["weights"] > 4.0 * 24e9  # replicas have all of it


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tables": ()}, "tables needs sizes"),
        ({"dim": 0}, "dim = 0 must be positive"),
        ({"bottom": (16, 4)}, "bottom ends with 4, not with dim = 8"),
        ({"top": (32, 2)}, "top ends with 2"),
        ({"lookups": 0}, "lookups = 0"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        validate({**SMALL, **changes}, Recommendation, "dlrm.toml")


def test_a_bag_of_more_rows_reads_more_and_sends_as_much():
    one, three = part(0, lookups=1), part(0, lookups=3)
    sent = [calls(own.forward)["pooled embeddings"].bytes for own in (one, three)]
    assert sent[0] == sent[1]
    reads = [kernel(own.forward, "look-up").bytes for own in (one, three)]
    rows = BATCH * 8 * (8 * WIDTH + 8)  # of one look-up in each table: a row and its index
    assert reads[1] - reads[0] == pytest.approx(2 * rows)


def test_half_the_width_halves_what_travels():
    model = network(Recommendation(**SMALL), "small")
    sharding = Sharding(ep=4, experts=("dp",))
    run = Execution(
        model=model, microbatch=BATCH, sharding=sharding, precision="fp32", fusion=Fusion()
    )
    wide, narrow = (
        calls(block("recommendation:0", own).forward)["pooled embeddings"].bytes
        for own in (run, replace(run, precision="bf16"))
    )
    assert wide == 2 * narrow
