"""A kind of layer is one file, and a word in a model's."""

from pathlib import Path

import pytest

from sim.config.errors import InputError
from sim.interface.document.terminal import text
from sim.interface.views.model import view
from sim.model.reading import load
from tests.adding.conftest import Add
from tests.adding.walk import planned, played, usual

SOURCE = '''
"""A layer without attention: a norm, a feed-forward block, a residual sum."""

from sim.model import feed_forward
from sim.model.operators import dropout_add, normalise


def operators(run):
    return (
        normalise(run, "ffn norm", run.local),
        *feed_forward.operators(run),
        dropout_add(run, "ffn residual", run.local),
    )
'''
MIXED = {"model.pattern": "dense, attentionless"}


def test_a_kind_of_layer_is_played_drawn_and_remembered(add: Add) -> None:
    add("sim.model.blocks", "attentionless", SOURCE)
    for plan in ({"plan.tp": 2, "plan.zero": 3}, {"plan.pp": 2}):
        mixed, dense = played({**plan, **MIXED}), usual(plan)
        assert mixed.step_time < dense.step_time
        assert mixed.memory_per_gpu["total"] < dense.memory_per_gpu["total"]


def test_a_layer_without_attention_keeps_no_keys(add: Add) -> None:
    add("sim.model.blocks", "attentionless", SOURCE)
    llama = load("llama3-70b")  # 80 layers, each of 2 (K and V) x 8 heads x 128 x 2 bytes = 4 KiB
    for pattern, kept in (("3 dense, attentionless", 240), ("dense, feed_forward", 160)):
        shown = text(view(llama.changed(pattern=pattern), "own"))
        assert f"keys and values       {kept} KiB  a token" in shown


@pytest.mark.long
def test_a_model_of_ones_own_is_searched_with_it(add: Add, here: Path) -> None:
    add("sim.model.blocks", "attentionless", SOURCE)
    packaged = Path(__file__).parents[2] / "models" / "llama3.2-1b.toml"
    (here / "mixed.toml").write_text(packaged.read_text() + 'pattern = "dense, attentionless"\n')
    mixed = planned("--only", "pp=2", model="mixed.toml")
    dense = planned("--only", "pp=2")
    assert mixed[0]["step_time"] < dense[0]["step_time"]


def test_without_its_file_a_kind_is_unknown() -> None:
    with pytest.raises(InputError, match="no kind of block is named 'attentionless'"):
        played(MIXED)
