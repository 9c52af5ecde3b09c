"""Known words that are similar to an unknown word."""

import difflib
from collections.abc import Sequence

_SYNONYMS = {"seeds": "samples"}  # other names of an option, with the name in Python
_LISTED = 3  # the most words in a "did you mean"


def nearest(word: str, known: Sequence[str]) -> str:
    """The answer to an unknown word: similar words, or all known words.

    >>> nearest("microbach", ["microbatch", "tp"]), nearest("x", ["tp", "pp"])
    ("did you mean 'microbatch'?", 'known: tp, pp')
    >>> nearest("seeds", ["scenario", "samples"])
    "did you mean 'samples'?"
    """
    return meant(_SYNONYMS.get(word, word), known) or f"known: {', '.join(known)}"


def meant(word: str, known: Sequence[str]) -> str:
    """A question with known words that the user may have meant; empty where no word is similar.
    Words that begin with `word`, in any case, come first.

    >>> meant("dgx-h100", ["dgx-2h-v100", "dgx-h100-ndr"]), meant("dgx-h10", ["dgx-2h-v100"])
    ("did you mean 'dgx-h100-ndr'?", "did you mean 'dgx-2h-v100'?")
    >>> meant("H100", ["h100-96gb", "h100-80gb", "h200"])
    "did you mean 'h100-80gb' or 'h100-96gb'?"
    >>> meant("h200-141gb-sxm", ["v100-16gb-sxm", "h200-sxm"])  # of the same first word
    "did you mean 'h200-sxm'?"
    """
    written = word.casefold()
    longer = [candidate for candidate in known if word and candidate.casefold().startswith(written)]
    near = sorted(longer) if len(longer) <= _LISTED else []
    if not near:
        close = difflib.get_close_matches(
            written, longer or known, n=len(known) or 1, cutoff=0.0 if longer else 0.6
        )
        head = written.partition("-")[0]
        near = sorted(close, key=lambda name: name.casefold().partition("-")[0] != head)[:1]
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
