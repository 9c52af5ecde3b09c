"""Whether a testbed can be built here, and if not, why."""

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

_PROBE = """
from tests.testbed import kernel, wiring
kernel.run_first()
kernel.enter_new_network()
wiring.batch("ip", ["link add br0 type bridge", "link add p0 type veth peer name eth0"])
wiring.batch("tc", wiring.shaper("p0", wiring.RATE, [0, 1], "src"))
kernel.switch_offloads_off("p0")
"""


@cache
def why_not() -> str:
    """What is missing for a testbed; empty if nothing is."""
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    if missing := [command for command in ("ip", "tc") if not shutil.which(command)]:
        return f"needs iproute2: no {' and no '.join(missing)}"
    if find_spec("torch") is None:
        return "needs torch (extra `torch`)"
    if "PYTEST_XDIST_WORKER" in os.environ:
        return "needs the machine for itself: `make testbed`"
    return _probe()


def _probe() -> str:
    """Try the calls that containers and small kernels may refuse, in a separate process."""
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    last = done.stderr.strip().splitlines()[-1:] or ["killed"]
    return f"this machine refuses it: {last[0]}"
