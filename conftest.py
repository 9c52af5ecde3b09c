"""Examples of a property may take as long as a busy machine needs; a module of the simulator is
collected only for its doctests; the laws of traffic hold in every test."""

from pathlib import Path

from hypothesis import settings

from tests import invariants

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
invariants.watch()

SOURCES = Path(__file__).parent / "sim"
# Scripts and modules beside tests that need torch: they hold no tests.
SCRIPTS = ("traces/ddp.py", "recorded/ddp.py", "capturing/modules.py", "capturing/fuzz.py")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules without doctests are not imported, among them all that need torch."""
    if collection_path.as_posix().endswith(SCRIPTS):
        return True
    inside = collection_path.suffix == ".py" and SOURCES in collection_path.parents
    return True if inside and b">>>" not in collection_path.read_bytes() else None
