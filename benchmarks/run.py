"""How fast the simulator is: every figure of the README, measured again by `make bench`.

    python -m benchmarks.run [--table RUNS.csv] [PART ...]

Each figure stands beside a plain way to the same, measured in the same process or right behind
it, because machines differ and are shared. Parts that are not named keep their last figures;
`regret` needs a CSV of measured runs (the columns of README.md). Nothing here is a test: tests
never assert wall time.
"""

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import clock, figures, replay, study

HERE = Path(__file__).parent
Measure = Callable[[], Any]

PARTS: dict[str, tuple[Measure, Callable[[Any], list[figures.Row]]]] = {
    "clock": (clock.measure, clock.rows),
    "scaling": (clock.scaling, clock.scaling_rows),
    "replay": (replay.measure, replay.rows),
    "samples": (replay.sampling, replay.sampling_rows),
    "study": (study.measure, study.rows),
}


def measured(measure: Measure) -> dict[str, Any]:
    """A part's figures, with when and where they were measured."""
    found = measure()
    date = datetime.now(UTC).isoformat(timespec="minutes")
    return {"date": date, "machine": figures.machine(), "figures": found}


def table(parts: dict[str, dict[str, Any]]) -> str:
    """All parts as a person reads them."""
    readers = {name: rows for name, (_, rows) in PARTS.items()} | {"regret": study.choosing_rows}
    lines = []
    for name, read in readers.items():
        if name in parts:
            lines += [_title(name, parts[name]), *figures.aligned(read(parts[name]["figures"])), ""]
    return "\n".join(lines)


def _title(name: str, part: dict[str, Any]) -> str:
    at = part["machine"]
    versions = ", ".join(f"{what} {version}" for what, version in at["versions"].items())
    return f"{name}: {part['date']}, {at['processor']}, {at['cores']} cores, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}, regret")
    parser.add_argument("--table", type=Path, help="measured runs, for the regret of choices")
    asked = parser.parse_args()
    known = {name: measure for name, (measure, _) in PARTS.items()}
    if asked.table:
        known["regret"] = lambda: study.choosing(asked.table)
    if unknown := [name for name in asked.parts if name not in known]:
        parser.error(f"no part {unknown[0]!r} here; there are {', '.join(known)}")
    latest = HERE / "latest.json"
    found = json.loads(latest.read_text()) if latest.exists() else {}
    for name in asked.parts or known:
        found[name] = measured(known[name])
        latest.write_text(json.dumps(found, indent=2) + "\n")
    (HERE / "latest.txt").write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    main()
