"""`python -m tests.campaign`: mistakes in files and options, laws, flips and kills, round after
round; `--replay FILE` tries what was written down once more.

A round has 100 cases, 20 laws, 5 flips and a kill, all drawn from its number, so that a number
plays them again. Rounds that are done are remembered in the folder of the campaign: the next run
goes on behind them, and its summary is of all.
"""

import argparse
import contextlib
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from sim.config.errors import InputError
from sim.interface.cli.main import main as sim
from tests.campaign import fuzz, harm, laws, rollouts
from tests.campaign.bases import BASES
from tests.campaign.case import Case, own_folder
from tests.campaign.job import Job
from tests.campaign.jobs import PARTS, drawn
from tests.campaign.trials import Slice, Trial, Verdict, tried

CASES, LAWS = 100, 20  # of a round
KINDS = ("cases", "laws", "harms")
BAR = {"cases": 10_000, "laws": 20_000, "kills": 100, "flips": 500}
_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Case, laws.LawTrial, harm.Flip, harm.SweepKill, harm.CalibrationKill)
}


def warm() -> None:
    """Run every base once, so that children find modules and files in memory."""
    with contextlib.suppress(ImportError):
        import_module("torch")
    for base in BASES:
        with own_folder(), open(os.devnull, "w") as nowhere:
            for name, data in base.files().items():
                path = Path(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            quiet = contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere)
            with quiet[0], quiet[1], contextlib.suppress(Exception, SystemExit):
                sim.main(list(base.arguments), standalone_mode=False)


def warm_jobs() -> None:
    """Play some jobs of each kind, whose files children then find read."""
    laws.another()
    for part, number in product((*PARTS, *rollouts.SERVERS, *rollouts.LOOPS), range(4)):
        with own_folder(), contextlib.suppress(InputError):
            Job(part, drawn(part, number)).time()
    gc.freeze()  # children copy no page of what is already here


def slices(number: int, kinds: Sequence[str] = KINDS) -> list[Slice]:
    """The trials of a round: cases in one child, laws in another, flips and kills in a third."""

    def law_by_law(play: Any) -> None:
        for place in range(LAWS):
            play(laws.trial(LAWS * number + place))

    def harm_by_harm(play: Any) -> None:
        for own in harm.harms(number):
            play(own)

    every: dict[str, Slice] = {
        "cases": lambda play: fuzz.cases_of(number, CASES, play),
        "laws": law_by_law,
        "harms": harm_by_harm,
    }
    return [every[kind] for kind in kinds]


def round_(number: int, found: Counter[str], folder: Path, kinds: Sequence[str] = KINDS) -> None:
    """Every trial of a round; what is a violation is written down."""
    for own in slices(number, kinds):
        for verdict in tried(own):
            found[verdict.counted_as] += 1
            if verdict.violation:
                found["violations"] += 1
                print(f"{kept(verdict, folder)}: {verdict.violation}", file=sys.stderr, flush=True)


def kept(verdict: Verdict, folder: Path) -> Path:
    """Write a violation down; `python -m tests.campaign --replay FILE` tries it again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{verdict.trial['kind']}-{time.time_ns()}.json"
    path.write_text(json.dumps({**verdict.trial, "said": verdict.violation}, indent=1) + "\n")
    return path


def read(path: Path) -> Trial:
    """The trial that was written down."""
    content = json.loads(path.read_text())
    trial: Trial = _KINDS[content["class"]].of(content)
    return trial


def replayed(path: Path) -> str | None:
    """What is to be said of a file's trial now."""
    trial = read(path)
    return next(verdict.violation for verdict in tried(lambda play: play(trial)))


def campaign(
    seconds: float,
    first: int | None,
    rounds: int,
    folder: Path,
    kinds: Sequence[str] = KINDS,
) -> Counter[str]:
    """Rounds until the time is over; what all rounds of the folder have found."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "rounds.jsonl"
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if first is None:
        first = max((own["round"] for own in done), default=0) + 1
    warm()
    warm_jobs()
    end = time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):
        for number in range(first, first + rounds):
            if time.monotonic() >= end:
                break
            found: Counter[str] = Counter()
            round_(number, found, folder, kinds)
            done.append({"round": number, "found": found})
            with log.open("a") as lines:
                lines.write(json.dumps(done[-1]) + "\n")
    return sum((Counter(own["found"]) for own in done), Counter({"rounds": len(done)}))


def summary(found: Counter[str]) -> str:
    """One line: so many of each, beside the bar."""
    counts = [f"{found[kind]:,} of {bar:,} {kind}" for kind, bar in BAR.items()]
    refused = sum(count for kind, count in found.items() if kind.endswith("refused"))
    told = f"{refused:,} that say nothing, {found['violations']:,} violations"
    return f"{found['rounds']:,} rounds: {', '.join(counts)}; {told}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE", help="try these again")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rounds", type=int, default=10**6)
    parser.add_argument("--first", type=int, help="the first round's number; else the next one")
    parser.add_argument("--only", choices=KINDS, help="this part of each round")
    parser.add_argument("--out", type=Path, default=Path("out/campaign"))
    given = parser.parse_args()
    if given.replay:
        told = {path: replayed(path) for path in given.replay}
        print("\n".join(f"{path}: {said or 'holds'}" for path, said in told.items()))
        return int(any(told.values()))
    kinds = (given.only,) if given.only else KINDS
    found = campaign(given.seconds, given.first, given.rounds, given.out.absolute(), kinds)
    print(summary(found))
    return int(found["violations"] > 0)


if __name__ == "__main__":
    sys.exit(main())
