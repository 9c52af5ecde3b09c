"""The critical path of a step as rows."""

from typing import Any

from sim.engine.record import Record


def critical_rows(record: Record) -> list[dict[str, Any]]:
    """Return the seconds of a step's critical path by stage and cause, the largest first. If steps
    overlap, the path of the whole run is scaled to a step. If pipelines do not drain, the path of a
    shorter run is subtracted first."""
    from sim.engine.critical_path import critical_path

    path = dict(critical_path(record))
    if record.base is not None:
        for key, seconds in critical_path(record.base).items():
            path[key] = path.get(key, 0.0) - seconds
    each = record.step_time / (sum(path.values()) or 1.0)
    rows = sorted(path.items(), key=lambda item: -item[1])
    return [
        {"stage": stage, "cause": cause, "seconds": seconds * each}
        for (stage, cause), seconds in rows
    ]
