"""How fast the simulator is: every figure of the README, measured again by `make bench`.

    python -m benchmarks.run [--table RUNS.csv] [PART ...]

Each figure stands beside a plain way to the same, measured in the same process or right behind
it, because machines differ and are shared; ratios of the two go to `history.csv`
(`benchmarks.history` draws it). Parts that are not named keep their last figures;
`regret` needs a CSV of measured runs (the columns of docs/measuring.md). Nothing here is a test:
tests never assert wall time.
"""

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import agreement, clock, cold, columns, figures, history, peers, startup, study

HERE = Path(__file__).parent
Measure = Callable[[], Any]

PARTS: dict[str, tuple[Measure, Callable[[Any], list[figures.Figure]]]] = {
    "startup": (startup.measure, startup.rows),
    "cold": (cold.measure, cold.rows),
    "clock": (clock.measure, clock.rows),
    "scaling": (clock.scaling, clock.scaling_rows),
    "replay": (columns.measure, columns.rows),
    "samples": (columns.sampling, columns.sampling_rows),
    "agreement": (agreement.measure, agreement.rows),
    "study": (study.measure, study.rows),
    "peers": (peers.measure, peers.rows),
}
RATIOS: dict[str, Callable[[Any], dict[str, float]]] = {
    "startup": startup.ratios,
    "cold": cold.ratios,
    "clock": clock.ratios,
    "replay": columns.ratios,
    "peers": peers.ratios,
}


def dated(measure: Measure) -> dict[str, Any]:
    """A part's figures, with when and where they were measured."""
    measured = measure()
    date = datetime.now(UTC).isoformat(timespec="minutes")
    return {"date": date, "machine": figures.machine(), "figures": measured}


def table(parts: dict[str, dict[str, Any]]) -> str:
    """All parts as a person reads them."""
    readers = {name: rows for name, (_, rows) in PARTS.items()} | {"regret": study.regret_rows}
    lines = []
    for name, read in readers.items():
        if name in parts:
            lines += [_title(name, parts[name]), *figures.aligned(read(parts[name]["figures"])), ""]
    return "\n".join(lines)


def _title(name: str, part: dict[str, Any]) -> str:
    machine = part["machine"]
    versions = ", ".join(f"{what} {version}" for what, version in machine["versions"].items())
    return f"{name}: {part['date']}, {machine['processor']}, {machine['cores']} cores, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}, regret")
    parser.add_argument("--table", type=Path, help="measured runs, for the regret of choices")
    arguments = parser.parse_args()
    measures = {name: measure for name, (measure, _) in PARTS.items()}
    if arguments.table:
        measures["regret"] = lambda: study.regrets(arguments.table)
    if unknown := [name for name in arguments.parts if name not in measures]:
        parser.error(f"no part {unknown[0]!r} here; there are {', '.join(measures)}")
    latest = HERE / "latest.json"
    parts = json.loads(latest.read_text()) if latest.exists() else {}
    for name in arguments.parts or measures:
        parts[name] = dated(measures[name])
        latest.write_text(json.dumps(parts, indent=2) + "\n")
        if name in RATIOS:
            history.append(RATIOS[name](parts[name]["figures"]))
    (HERE / "latest.txt").write_text(table(parts))
    print(table(parts))


if __name__ == "__main__":
    main()
