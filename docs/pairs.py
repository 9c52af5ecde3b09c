"""Writes docs/pairs.md: which features of a training job go together.

    python -m docs.pairs

A job is set up with every two features of `tests.campaign.features`. The table has the refused
pairs with the reason.
"""

from collections import defaultdict
from itertools import combinations
from pathlib import Path

from sim import kind
from sim.config.errors import InputError
from sim.scenario.setup import from_scenario
from tests.campaign.features import FEATURES, job, together

PAGE = Path(__file__).parent / "pairs.md"
HEAD = """\
# Which features go together

Every two of these {features} features were combined in one job, a small Mixtral on 16 H100s:
{pairs} pairs. {refused} of them are refused, and {choices} are no pairs, since both features set
the same key. All other pairs run, and obey the same laws as any job (`tests/campaign`).
`python -m docs.pairs` writes this page.

| feature | set by | not together with |
| --- | --- | --- |
"""


def refusals() -> dict[tuple[str, str], str]:
    """Return why two features do not go together, by refused pair; empty if both set one key."""
    found = {}
    for pair in combinations(FEATURES, 2):
        settings = together(*pair)
        if settings is None:
            found[pair] = ""
            continue
        try:
            from_scenario(kind.described(job(settings)))
        except InputError as error:
            found[pair] = f"{error.what}; {error.remedy}"
    return found


def page() -> str:
    """The page as Markdown."""
    found = refusals()
    against: defaultdict[str, list[str]] = defaultdict(list)
    for pair, reason in found.items():
        for one, other in (pair, pair[::-1]):
            if reason:
                against[one].append(f"{other}: {reason}")
    count = len(FEATURES)
    head = HEAD.format(
        features=count,
        pairs=count * (count - 1) // 2,
        refused=sum(map(bool, found.values())),
        choices=sum(not reason for reason in found.values()),
    )
    rows = (f"| {name} | {_keys(name)} | {'<br>'.join(against[name])} |\n" for name in FEATURES)
    return head + "".join(rows)


def _keys(name: str) -> str:
    return ", ".join(f"`{key} = {_toml(value)}`" for key, value in FEATURES[name].items())


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(own)}" for key, own in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
