"""What the host of a recorded step takes, where its operators were measured."""

from dataclasses import replace
from pathlib import Path

import pytest

import sim
from sim.config.errors import InputError
from sim.hardware.kernels import dispatch, profile
from sim.hardware.kernels.dispatch import OperatorTime
from sim.hardware.kernels.measurements import HEADING
from sim.jobs.recorded.recording import Event, Operator, Tensor
from sim.jobs.recorded.setup import RecordedScenario
from tests.jobs.recorded.test_play import recorded

SMALL = Tensor(dtype="float32", width=4, shape=(8,))
PRODUCT = Operator(name="aten.mm", inputs=(replace(SMALL, shape=(8, 8)),) * 2)
NORM = Operator(name="aten.native_layer_norm_backward", inputs=(SMALL,))  # three kernels
STEP = Operator(name="aten._foreach_add_", inputs=(SMALL,) * 20, flags={"lists": 2})
OTHER = Operator(name="aten.gelu", inputs=(SMALL,))
MM, LN, ADD, GELU = range(4)

FORWARD, BACKWARD, LAUNCH = 20e-6, 90e-6, 17e-6  # the last by sim.hardware.stack
TABLE = (
    OperatorTime(operator="mm", phase="forward", seconds=FORWARD),
    OperatorTime(operator="view", phase="forward", seconds=3e-6),
    OperatorTime(operator="native_layer_norm_backward", phase="backward", seconds=BACKWARD),
    OperatorTime(operator="_foreach_add_", phase="optimizer", seconds=40e-6, each=2e-6),
)
PROFILE = """
format = 1
device = "h100-80gb-sxm"
measurements = "mine.csv"
operators = "mine-host.csv"
provenance = { torch = "2.13.0" }
"""


@pytest.fixture
def named(tmp_path: Path) -> str:
    """A profile of nothing but the host."""
    (tmp_path / "mine.csv").write_text(HEADING)
    dispatch.write(TABLE, tmp_path / "mine-host.csv")
    (tmp_path / "mine.toml").write_text(PROFILE)
    return str(tmp_path / "mine.toml")


def played(named: str, *events: Event) -> sim.Result:
    own = recorded(*events, operators=(PRODUCT, NORM, STEP, OTHER))
    scenario = RecordedScenario(record=(own,), topology="dgx-h100-ndr")
    return sim.run(sim.load(scenario, {"device.profile": named} if named else {}))


def more(named: str, *events: Event) -> float:
    """Seconds that events add to a step which its host limits."""
    before = [Event(kind="kernel", operator=MM)] * 3
    return played(named, *before, *events).step_time - played(named, *before).step_time


MANY = 50


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Event(kind="kernel", operator=MM), FORWARD),
        (Event(kind="kernel", operator=MM, views=2), FORWARD + 2 * 3e-6),
        (Event(kind="kernel", operator=MM, phase="backward", again=True), FORWARD),
        (Event(kind="kernel", operator=LN, phase="backward"), BACKWARD),
        (Event(kind="kernel", operator=ADD, phase="optimizer"), 40e-6 + 10 * 2e-6),
        (Event(kind="kernel", operator=GELU, views=2), LAUNCH),
        (Event(kind="kernel", operator=GELU, phase="backward"), LAUNCH),
    ],
)
def test_an_operator_takes_its_own_time_however_many_kernels_it_launches(
    named: str, event: Event, expected: float
) -> None:
    once, often = more(named, event), more(named, *[event] * (MANY + 1))
    assert often - once == pytest.approx(MANY * expected, rel=1e-6)


def test_kernels_of_a_graph_are_launched_together_whatever_operators_take(named: str) -> None:
    one = Event(kind="kernel", operator=MM, graph=1)
    assert more(named, *[one] * 51) - more(named, one) < 50 * FORWARD / 2


def test_a_result_says_once_which_share_was_measured(named: str) -> None:
    events = [Event(kind="kernel", operator=MM)] * 3 + [Event(kind="kernel", operator=GELU)]
    said = [text for text in played(named, *events).warnings if "host times" in text]
    assert said == [
        f"profile {named} (torch 2.13.0) has measured host times for 75% of launches; "
        "the stack times the others (gelu)"
    ]
    assert not [text for text in played("", *events).warnings if "host times" in text]


def test_a_table_is_read_as_it_was_written(named: str) -> None:
    assert profile.load(named).operators == TABLE


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mm,sideways,1e-6,0,0,1\n", "phase 'sideways' is none of"),
        ("mm,forward,-1,0,0,1\n", "is not positive"),
        ("mm,forward,1e-6,0,0\n", "is cut short"),
        ("mm,forward,1e-6,nothing,0,1\n", "is no operator's time"),
        ("mm,forward,1e-6,0,0,-3\n", "calls = -3 must not be negative"),
        (" ,forward,1e-6,0,0,1\n", "it names no operator"),
    ],
)
def test_a_row_that_is_none_is_one_line(named: str, line: str, said: str) -> None:
    table = Path(named).with_name("mine-host.csv")
    table.write_text(",".join(dispatch.COLUMNS) + "\n" + line)
    with pytest.raises(InputError) as error:
        profile.load(named)
    assert said in str(error.value)
    assert "line 2" in str(error.value)


def test_an_operator_has_one_row_a_phase(named: str) -> None:
    table = Path(named).with_name("mine-host.csv")
    table.write_text(table.read_text() + "mm,backward,1e-6,0,0,1\nmm,forward,1e-6,0,0,1\n")
    with pytest.raises(InputError, match=r"mine-host.csv, line 7: .*mm, forward stands above"):
        profile.load(named)
