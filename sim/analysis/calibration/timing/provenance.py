"""Where a measurement comes from: device, driver, libraries, clocks, threads, date, command."""

import datetime
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

Provenance = dict[str, str | int | float]

_QUERIED = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu")


def provenance(device: str, *, processes: int = 1) -> Provenance:
    """Return known facts of the machine that the command runs on."""
    import torch

    software: Provenance = {
        **command(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if device == "cpu":
        threads: Provenance = {"threads": torch.get_num_threads(), "processes": processes}
        return {"device": processor(), **software, **threads}
    return {**_gpu(), **software}


def command() -> Provenance:
    """Return the date and the command."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["sim", *sys.argv[1:]]),
    }


def machine(device: str) -> dict[str, str]:
    """Return the device's name and torch's version, which are printed above a comparison."""
    import torch

    if device == "cuda":
        name = torch.cuda.get_device_name()
        return {"device": name, "torch": torch.__version__, "cuda": str(torch.version.cuda)}
    threads = torch.get_num_threads()
    unit = "thread" if threads == 1 else "threads"
    return {"device": f"{processor()}, {threads} {unit} a rank", "torch": torch.__version__}


def processor() -> str:
    """Return the processor's name as Linux gives it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _gpu() -> Provenance:
    import torch

    version: Any = torch.cuda.nccl.version
    nccl = version() if torch.distributed.is_nccl_available() else ()
    return {
        "device": torch.cuda.get_device_name(),
        "cuda": str(torch.version.cuda),
        "nccl": ".".join(map(str, nccl)),
        **_nvidia_smi(),
    }


def _nvidia_smi() -> Provenance:
    """Return driver, clocks and temperature; empty without nvidia-smi."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    query = [tool, f"--query-gpu={','.join(_QUERIED)}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    values = done.stdout.splitlines()[0].split(", ") if done.returncode == 0 else []
    names = (name.replace(".", " ").replace("_", " ") for name in _QUERIED)
    return dict(zip(names, values, strict=False))
