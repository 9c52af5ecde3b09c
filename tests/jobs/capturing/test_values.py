"""What is said of unknown values, without torch."""

from math import inf
from types import SimpleNamespace

import pytest

from sim.config.errors import InputError
from sim.jobs.capturing import values
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.values import UnknownValues

LINE = "train.py:12"
WHOLE = SimpleNamespace(is_floating_point=False)
REAL = SimpleNamespace(is_floating_point=True)


def asked(log: Log, value: float | None = None) -> UnknownValues:
    """Values that are asked for on a line, where one may be given."""
    return UnknownValues(log, lambda: LINE, {} if value is None else {LINE: value}, "")


def decide(own: UnknownValues, times: int, *, operators: int, passes: bool) -> None:
    for _ in range(times):
        own.log.seen += operators
        own.log.backwards += passes
        own.of("torch.bool")


def test_a_line_may_decide_in_each_of_many_microbatches() -> None:
    decide(asked(Log()), 200, operators=values._OPERATORS // 10, passes=True)


def test_a_line_that_decides_again_and_again_without_a_pass_is_refused() -> None:
    said = rf"{LINE}: waits .* without an update or a backward pass\); try --value {LINE}=true, "
    with pytest.raises(InputError, match=rf"{said}or --value {LINE}=false to let it go on"):
        decide(asked(Log()), 200, operators=values._OPERATORS // 10, passes=False)


def test_a_line_whose_value_is_given_goes_on_for_longer() -> None:
    own = asked(Log(), value=False)
    decide(own, 200, operators=values._OPERATORS // 10, passes=False)
    with pytest.raises(InputError, match=rf"20,000 times without an update\); .*{LINE}=true$"):
        decide(own, values._MOST_ASKED, operators=0, passes=True)


def test_true_or_false_of_a_line_that_decides_nothing_is_refused() -> None:
    own = asked(Log(), value=False)
    own.of(REAL)
    with pytest.raises(InputError, match=rf"{LINE}=false: the line reads a number.*{LINE}=0\.5"):
        own.check_used(alone=True)


@pytest.mark.parametrize(("value", "remedy"), [(2.6, 3), (inf, 1)])
def test_a_whole_number_is_not_read_from_another(value: float, remedy: int) -> None:
    with pytest.raises(InputError, match=rf"a whole number is read .*{LINE}={remedy}$"):
        asked(Log(), value=value).of(WHOLE)
