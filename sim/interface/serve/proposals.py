"""What a click can mend: the values that the remedy of a mistake names, as settings."""

import re
from collections.abc import Iterator, Mapping, Sequence

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.scenario.settings import FILES

_SET = re.compile(r"\b([a-z_]+(?:\.[a-z_]+)*) = ([\w.\-]+)")
_BOUND = re.compile(r"\bset ([a-z_.]+) (?:at least|at most|>=|<=) ([\d.]+)")
_MEANT = re.compile(r"'([^']+)'")
_KNOWN = re.compile(r"known: (.+)")
_MOST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Settings that may mend a mistake; None takes a setting back."""

    label: str
    settings: Mapping[str, str | None]


def proposals(error: InputError, settings: Mapping[str, str], last: str) -> tuple[Proposal, ...]:
    """What the remedy of an error proposes, of a state whose `last` setting was changed last.

    >>> error = InputError("gpt3, plan", "tp = 3 does not divide 96 heads", "set tp = 4")
    >>> proposals(error, {"plan.tp": "3"}, "plan.tp")
    (Proposal(label='tp = 4', settings={'plan.tp': '4'}),)
    """
    found = [*_assigned(error), *_words(error, settings, last)]
    return tuple({one.label: one for one in found}.values())[:_MOST]


def of_remedies(remedies: Sequence[str]) -> tuple[Proposal, ...]:
    """Changes of a plan that make it fit into memory.

    >>> of_remedies(["pp = 8 and recompute = full"])[0].settings
    {'plan.pp': '8', 'plan.recompute': 'full'}
    """
    return tuple(
        Proposal(
            label=remedy, settings={f"plan.{key}": value for key, value in _SET.findall(remedy)}
        )
        for remedy in remedies
        if _SET.search(remedy)
    )


def _assigned(error: InputError) -> Iterator[Proposal]:
    """Of "set tp = 4 or tp = 8" each value."""
    for key, value in (*_SET.findall(error.remedy), *_BOUND.findall(error.remedy)):
        yield Proposal(label=f"{key} = {value}", settings={_whole(key, error.where): value})


def _whole(key: str, where: str) -> str:
    """A key with the tables that the place of the error names."""
    if key.partition(".")[0] in (*FILES, "plan", "gpus", "sharing"):
        return key
    tables = [part for part in where.split(", ")[1:] if part.isidentifier()]
    return ".".join((*tables, key))


def _words(error: InputError, settings: Mapping[str, str], last: str) -> Iterator[Proposal]:
    """Of "did you mean 'adam'?" each word, in place of the value or the key that is wrong."""
    listed = _KNOWN.search(error.remedy)
    words = listed[1].split(", ") if listed else _MEANT.findall(error.remedy)
    if "did you mean" not in error.remedy and not listed:
        return
    if "unknown key" in error.what and listed:
        return  # nothing is near: all keys that there are
    for word in words:
        if "unknown key" in error.what and last in settings:
            table = last.rpartition(".")[0]
            key = word if "." in word or not table else f"{table}.{word}"
            renamed = {last: None, key: settings[last]}
            yield Proposal(label=f"{key} = {settings[last]}", settings=renamed)
        elif last:
            yield Proposal(label=f"{last.rpartition('.')[2]} = {word}", settings={last: word})
