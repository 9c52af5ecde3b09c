"""Where torch's inside is not known there is no GPU that is not there."""

from importlib.metadata import PackageNotFoundError, version

from sim.jobs.capturing.device import OLDEST, release

try:
    there = release(version("torch")) >= OLDEST
except PackageNotFoundError:
    there = False
collect_ignore_glob = [] if there else ["test_cuda*.py", "gpu.py"]
