"""Files that define torch modules can be read for doctests only where torch is."""

from importlib.util import find_spec

_TORCH = ["modules/*", "trainer.py", "optimizer.py"]
collect_ignore_glob = (
    [] if find_spec("torch") else [f"sim/analysis/calibration/training/{name}" for name in _TORCH]
)
