"""The testbed as a fixture: built once for each number of hosts, always taken down."""

import operator
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.testbed import table
from tests.testbed.availability import why_not
from tests.testbed.check import Calibration, Check
from tests.testbed.checks import checks
from tests.testbed.ddp_checks import calibrate
from tests.testbed.hosts import Hosts
from tests.testbed.kernel import processor_time, processors_awake
from tests.testbed.predict import Predictor
from tests.testbed.table import Row
from tests.testbed.wiring import RATE

collect_ignore = ["patterns.py"]  # imports torch, which only the hosts need
ARTEFACT = Path(__file__).parents[2] / "out" / "testbed.csv"
SIZES = [int(size) for size in os.environ.get("TESTBED_HOSTS", "4").split()]
ATTEMPTS = 5
_rows: list[Row] = []


class Testbed:
    """Real hosts, and the predictions of all checks, made before any of them is measured."""

    __test__ = False

    def __init__(self, size: int) -> None:
        self.size = size
        self._hosts: Hosts | None = None
        with TemporaryDirectory() as folder:
            calibration = calibrate(self._running(), Path(folder))
            self.checks = {check.name: check for check in checks(size, calibration)}
            self.predicted = {
                name: self._predict(check, calibration) for name, check in self.checks.items()
            }

    def _predict(self, check: Check, calibration: Calibration) -> tuple[float, ...]:
        return check.predict(Predictor(self.size, calibration.message, check.slow))

    def measured(self, name: str) -> list[Row]:
        """Return the rows of a check. Other work comes in bursts and only slows the hosts, so a
        check that was too slow is measured again, and a check that was too fast is not."""
        for attempt in range(1, ATTEMPTS + 1):
            rows = self._rows(name, attempt)
            if not any(row.slowed for row in rows):
                break
        _rows.extend(rows)
        return rows

    def _rows(self, name: str, attempt: int) -> list[Row]:
        check = self.checks[name]
        before = processor_time()
        measured = self._measure(check)
        stolen, spent = map(operator.sub, processor_time(), before)
        return [
            Row(
                hosts=self.size,
                check=name if len(check.quantities) == 1 else f"{name}: {quantity.name}",
                quantity=quantity.name,
                unit=quantity.unit,
                predicted=predicted,
                measured=value,
                bar=quantity.bar,
                load=table.load(),
                stolen=stolen / spent,
                attempt=attempt,
            )
            for quantity, predicted, value in zip(
                check.quantities, self.predicted[name], measured, strict=True
            )
        ]

    def _measure(self, check: Check) -> tuple[float, ...]:
        try:
            hosts = self._running()
            for host, factor in check.slow.items():
                hosts.set_rate(host, RATE / factor)
            if check.narrow:
                hosts.set_trunk(RATE)
            measured = check.measure(hosts)
            for host in check.slow:
                hosts.set_rate(host, RATE)
            if check.narrow:
                hosts.set_trunk(0.0)
            return measured
        except BaseException:
            self.close()  # the next check gets new hosts
            raise

    def _running(self) -> Hosts:
        if self._hosts is None:
            self._hosts = Hosts(self.size).__enter__()
        return self._hosts

    def close(self) -> None:
        hosts, self._hosts = self._hosts, None
        if hosts is not None:
            hosts.__exit__()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip its tests, with the reason, if no testbed can be built."""
    of_testbed = [item for item in items if item.get_closest_marker("testbed")]
    if of_testbed and (reason := why_not()):
        for item in of_testbed:
            item.add_marker(pytest.mark.skip(reason=f"testbed: {reason}"))


@pytest.fixture(scope="session")
def testbeds() -> Iterator[Callable[[int], Testbed]]:
    """The testbed with a number of hosts; only the latest has hosts that run."""
    built: dict[int, Testbed] = {}

    def of(size: int) -> Testbed:
        if size not in built:
            for before in built.values():
                before.close()
            built[size] = Testbed(size)
        return built[size]

    try:
        with processors_awake():
            yield of
    finally:
        for testbed in built.values():
            testbed.close()


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    """All rows so far."""
    return _rows


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table and save it."""
    if _rows:
        table.write(_rows, ARTEFACT)
        terminalreporter.section("testbed: predicted and measured")
        for line in table.text(_rows):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"saved in {ARTEFACT.relative_to(Path.cwd())}")
