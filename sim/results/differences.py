"""Differences of two times: seconds by name, which add up to the difference of the times."""

from collections.abc import Iterator, Mapping

Seconds = Mapping[str, float]


def differences(before: Seconds, after: Seconds) -> dict[str, float]:
    """Return the change of each name's seconds, more (+) or less (-), the largest change first.

    >>> differences({"compute": 5.0, "bubble": 2.0}, {"compute": 6.0, "host": 0.5})
    {'bubble': -2.0, 'compute': 1.0, 'host': 0.5}
    """
    names = sorted({*before, *after})
    found = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in names}
    return dict(sorted(found.items(), key=lambda item: -abs(item[1])))


def told(found: Seconds, least: float, most: int = 4) -> Iterator[str]:
    """Yield the first `most` differences, in words, if they exceed `least` seconds.

    >>> list(told({"bubble": -2.0, "compute": 1.0, "host": 0.5}, 0.9))
    ['-2.000 s bubble', '+1.000 s compute']
    """
    for name, seconds in list(found.items())[:most]:
        if abs(seconds) > least:
            yield f"{seconds:+.3f} s {name}"
