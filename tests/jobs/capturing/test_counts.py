"""Collectives of a captured step, against hand counts: how often, which bytes, which groups."""

from collections import Counter
from math import ceil

import pytest

from sim.jobs.recorded.recording import Recording
from tests.jobs.capturing.test_edits import FSDP, MICRO, SCRIPT, recorded

LAYERS, WIDTH, VOCABULARY, RANKS = 3, 2048, 8000, 64
LAYER = 2 * WIDTH + 12 * WIDTH**2  # a norm; queries, keys, values, output, feed-forward
REST = 2 * VOCABULARY * WIDTH  # embedding and head
WEIGHTS = LAYERS * LAYER + REST


def calls(recording: Recording, kind: str, phase: str | None = None) -> list[float]:
    """The bytes of each collective of a kind, larger than a number."""
    return [
        e.bytes
        for e in recording.events
        if e.kind == "collective" and e.name == kind and e.bytes > 64
        if phase in (None, e.phase)
    ]


def padded(sizes: list[tuple[int, ...]], ranks: int, width: int) -> int:
    """Bytes of parameters that are cut along their first dimension into equal shares."""
    total = 0
    for rows, *others in sizes:
        share = ceil(rows / ranks)
        total += ranks * share * (others[0] if others else 1)
    return width * total


def test_ddp_sums_each_gradient_once_a_microbatch() -> None:
    recording = recorded(SCRIPT + MICRO)
    assert sum(calls(recording, "all_reduce", "backward")) == 3 * 4 * WEIGHTS
    late = SCRIPT.replace(
        "SYNC = lambda *_: None",
        "SYNC = lambda model, number, micro: "
        "setattr(model, 'require_backward_grad_sync', number == micro - 1)",
    )
    assert sum(calls(recorded(late + MICRO), "all_reduce", "backward")) == 4 * WEIGHTS


def test_ddp_divides_a_gradient_as_it_is_copied_or_where_it_lies() -> None:
    """Three microbatches: in and out of a bucket each time; as views, in once and then in place."""
    views = MICRO.replace("device_ids=[0]", "device_ids=[0], gradient_as_bucket_view=True")
    for end, copied, divided in ((MICRO, 6, 0), (views, 1, 2)):
        recording = recorded(SCRIPT + end)
        written = Counter[str]()
        for event in recording.events:
            if event.kind == "kernel" and event.phase == "backward":
                operator = recording.operators[event.operator]
                written[operator.name] += int(operator.written)
        assert written["aten.copy_"] == copied * 4 * WEIGHTS
        assert written["aten.div_"] == divided * 4 * WEIGHTS


@pytest.mark.parametrize("shard", [64, 8], ids=["fsdp", "hsdp"])
def test_fsdp_gathers_weights_in_bf16_and_scatters_gradients(shard: int) -> None:
    """Two microbatches; each layer is gathered forward and back, the root forward only. torch
    pads each parameter to equal shares of its rows."""
    mesh = 'mesh=dist.init_device_mesh("cuda", (8, 8), mesh_dim_names=("replicate", "shard"))'
    text = SCRIPT + FSDP
    recording = recorded(
        text if shard == RANKS else text.replace("mp_policy=policy", f"{mesh}, mp_policy=policy")
    )
    layer = padded(
        [(WIDTH,), (WIDTH,), (3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH),
         (WIDTH, 4 * WIDTH)], shard, 2,
    )  # fmt: skip
    root = padded([(VOCABULARY, WIDTH), (VOCABULARY, WIDTH)], shard, 2)
    gathered = Counter(calls(recording, "all_gather"))
    assert gathered == {float(layer): 2 * 2 * LAYERS, float(root): 2}
    scattered = Counter(calls(recording, "reduce_scatter"))
    assert scattered == {float(layer): 2 * LAYERS, float(root): 2}
    summed = calls(recording, "all_reduce", "backward")
    assert sum(summed) == (0 if shard == RANKS else 2 * (LAYERS * layer + root) / shard)
    groups = {
        recording.groups[e.group].ranks
        for e in recording.events
        if e.kind == "collective" and e.name == "all_gather"
    }
    assert groups == {tuple(range(shard))}
