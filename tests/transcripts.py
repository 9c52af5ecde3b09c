"""What commands print, to the letter, by this interpreter and by others.

`python -m tests.transcripts` prints the transcripts of every scenario and of a command of each
kind; `--against PYTHON ...` has other interpreters, in whose environments the simulator's packages
are, print theirs, and tells the first line of each that differs. BLAS and compilers of packages may
round otherwise, so that lines are compared behind what a terminal shows, not behind all digits.
"""

import argparse
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from difflib import unified_diff
from pathlib import Path

from sim.config import catalog
from sim.interface.cli.main import main as sim

ROOT = Path(__file__).parents[1]
OTHERS = (
    ("plan", "llama3-8b", "dgx-h100-ndr", "--gpus=16", "--global-batch=64", "--jobs=1"),
    ("explain", "gpt3-175b-megatron"),
    ("compare", "megatron-39b", ": plan.microbatch=8"),
    ("goodput", "llama3-405b-16k"),
    ("cost", "gpt3-175b-cost"),
    ("sweep", "gpt2-one-gpu", "--vary=plan.microbatch=1,2,4", "--jobs=1", "--no-store"),
    ("collective", "all_reduce", "1 MiB", "dgx-a100-hdr", "--gpus=16"),
    ("run", "ps-async", "--seeds=3"),
    ("run", "gpt2-one-gpu", "--set=plan.microbach=2"),
)
_OWN_TIME = re.compile(
    r"(?:in|events,) [\d.]+ (?:us|ms|s|min)\b|[\d,]+ a second|\"wall_seconds\": [\d.e-]+"
)


def commands() -> list[tuple[str, ...]]:
    """A run of every packaged scenario, and the others."""
    names = sorted(path.stem for path in (catalog.packaged_root() / "scenarios").glob("*.toml"))
    return [*(("run", name) for name in names), *OTHERS]


def transcript(arguments: tuple[str, ...]) -> Iterator[str]:
    """The command, what it prints, and its exit code; its own time is left out."""
    out, code = io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(out):
        try:
            sim.main(list(arguments), prog_name="sim")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    yield f"$ sim {' '.join(arguments)}"
    yield from (_OWN_TIME.sub("...", line) for line in out.getvalue().splitlines())
    yield f"exit {code}"


def of_another(python: str) -> list[str]:
    """The transcripts that another interpreter prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [python, "-m", "tests.transcripts"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.splitlines()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.transcripts", description=__doc__)
    parser.add_argument("--against", nargs="+", default=(), metavar="PYTHON")
    given = parser.parse_args()
    own = [line for arguments in commands() for line in transcript(arguments)]
    if not given.against:
        print("\n".join(own))
        return 0
    unlike = 0
    for python in given.against:
        lines = list(
            unified_diff(own, of_another(python), sys.executable, python, n=1, lineterm="")
        )
        unlike += bool(lines)
        print("\n".join(lines) or f"{python}: {len(own)} lines of {len(commands())} commands alike")
    return int(unlike > 0)


if __name__ == "__main__":
    sys.exit(main())
