"""Propose settings that may correct a mistake with a click.

Values come from the words of the mistake's remedy, or are near the wrong value. The module
`questions` tries each proposal, and offers it only if the state then runs."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import log

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.interface.serve.controls import Control
from sim.scenario.settings import FILES

_SET = re.compile(r"\b([a-z_]+(?:\.[a-z_]+)*) = ([\w.\-]+)")
_BOUND = re.compile(r"\bset ([a-z_.]+) (?:at least|at most|>=|<=) ([\d.]+)")
_MEANT = re.compile(r"'([^']+)'")
_KNOWN = re.compile(r"known: (.+)")
_NUMBER = re.compile(r"\b\d+(?:\.\d+)?\b")
_NEAREST = 6  # values of a control


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Settings that may correct a mistake; None removes a setting."""

    label: str
    settings: Mapping[str, str | None]


def proposals(
    error: InputError, settings: Mapping[str, str], controls: Sequence[Control], last: str
) -> Iterator[Proposal]:
    """Yield proposals that may correct a state, the likeliest first: values in the error's remedy,
    then values near the values of the controls. `last` is the setting that was changed last.

    >>> error = InputError("gpt3, plan", "tp = 3 does not divide 96 heads", "set tp = 4")
    >>> next(proposals(error, {"plan.tp": "3"}, (), "plan.tp"))
    Proposal(label='tp = 4', settings={'plan.tp': '4'})
    """
    found = (*_assigned(error), *_words(error, settings, last), *_beside(error, controls, last))
    different = dict[tuple[tuple[str, str | None], ...], Proposal]()
    for proposal in found:
        different.setdefault((*proposal.settings.items(),), proposal)
    return iter(different.values())


def of_remedies(remedies: Sequence[str]) -> tuple[Proposal, ...]:
    """Return the changes of a plan that make it fit into memory.

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
    """Yield each value of a remedy such as "set tp = 4 or tp = 8"."""
    for key, value in (*_SET.findall(error.remedy), *_BOUND.findall(error.remedy)):
        yield Proposal(label=f"{key} = {value}", settings={_whole(key, error.where): value})


def _whole(key: str, where: str) -> str:
    """Return a key with the tables of the error's place before it, unless the key is complete."""
    if key.partition(".")[0] in (*FILES, "plan", "gpus", "sharing"):
        return key
    tables = [part for part in where.split(", ")[1:] if part.isidentifier()]
    return ".".join((*tables, key))


def _words(error: InputError, settings: Mapping[str, str], last: str) -> Iterator[Proposal]:
    """Yield each word of "did you mean 'adam'?", in place of the wrong value or key."""
    listed = _KNOWN.search(error.remedy)
    words = listed[1].split(", ") if listed else _MEANT.findall(error.remedy)
    if "did you mean" not in error.remedy and not listed:
        return
    if "unknown key" in error.what and listed:
        return  # no key is near: the list has all known keys
    for word in words:
        if "unknown key" in error.what and last in settings:
            table = last.rpartition(".")[0]
            key = word if "." in word or not table else f"{table}.{word}"
            renamed = {last: None, key: settings[last]}
            yield Proposal(label=f"{key} = {settings[last]}", settings=renamed)
        elif last:
            yield Proposal(label=f"{last.rpartition('.')[2]} = {word}", settings={last: word})


def _beside(error: InputError, controls: Sequence[Control], last: str) -> Iterator[Proposal]:
    """Yield values for the control that was changed last: with a unit, from the remedy, and near
    its value. Then yield near values for other controls that the error mentions."""
    words = set(re.findall(r"[a-z_]+", f"{error.what} {error.remedy}"))
    changed = [control for control in controls if control.key == last and control.form != "slow"]
    named = [
        control
        for control in controls
        if control.key.rpartition(".")[2] in words and control.form != "slow"
    ]
    for control in (*changed, *(control for control in named if control not in changed)):
        values = _near(control)
        if control.key == last:
            said = [] if _SET.search(error.remedy) else _NUMBER.findall(error.remedy)
            values = [*_with_unit(control), *(said if control.form == "number" else []), *values]
        for value in values:
            yield Proposal(label=f"{control.label}: {value}", settings={control.key: value})


def _with_unit(control: Control) -> list[str]:
    """Return a value without a unit, with each unit of the control's choices; the most frequent
    unit is first."""
    if not _NUMBER.fullmatch(control.value):
        return []
    units = Counter(value.partition(" ")[2] for value in (control.hint, *control.choices))
    return [f"{control.value} {unit}" for unit, _ in units.most_common() if unit]


def _near(control: Control) -> list[str]:
    """Return the choices nearest to a control's value."""
    choices = [choice for choice in control.choices if choice != control.value]

    def distance(value: str) -> float:
        numbers = [_NUMBER.match(text) for text in (value, control.value)]
        if all(numbers):
            ratio = [max(float(match[0]), 1e-9) for match in numbers if match]
            return abs(log(ratio[0] / ratio[1]))
        return 0.0

    return sorted(filter(None, choices), key=distance)[:_NEAREST]
