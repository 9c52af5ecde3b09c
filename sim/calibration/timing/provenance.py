"""Where a measurement comes from: device, driver, libraries, clocks, threads, date, command."""

import datetime
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

Provenance = dict[str, str | int | float]

_ASKED = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu")


def provenance(device: str, *, processes: int = 1) -> Provenance:
    """What is known of the machine that the command runs on."""
    import torch

    found: Provenance = {
        **command(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if device == "cpu":
        threads: Provenance = {"threads": torch.get_num_threads(), "processes": processes}
        return {"device": processor(), **found, **threads}
    return {**_of_gpu(), **found}


def command() -> Provenance:
    """When, and by which command."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["sim", *sys.argv[1:]]),
    }


def processor() -> str:
    """The processor's name as Linux gives it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _of_gpu() -> Provenance:
    import torch

    version: Any = torch.cuda.nccl.version
    nccl = version() if torch.distributed.is_nccl_available() else ()
    return {
        "device": torch.cuda.get_device_name(),
        "cuda": str(torch.version.cuda),
        "nccl": ".".join(map(str, nccl)),
        **_asked(),
    }


def _asked() -> Provenance:
    """What nvidia-smi says of driver, clocks and temperature; nothing where it is not there."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    query = [tool, f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    values = done.stdout.splitlines()[0].split(", ") if done.returncode == 0 else []
    names = (name.replace(".", " ").replace("_", " ") for name in _ASKED)
    return dict(zip(names, values, strict=False))
