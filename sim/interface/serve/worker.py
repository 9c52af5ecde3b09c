"""Answer the questions of a page in a process of its own. The base, then each question, is a line
of JSON on standard input; each line is answered by a line of JSON on standard output."""

import json
import signal
import sys
from typing import Any


def main() -> None:
    """Answer questions until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only a question can be interrupted
    answers, sys.stdout = sys.stdout, sys.stderr  # other output must not mix with answers
    if not (told := sys.stdin.readline()):  # the page was closed before it sent the base
        return
    base = json.loads(told)

    from sim.config.progress import silence
    from sim.interface.serve.questions import Questions
    from sim.interface.serve.states import Base, Bases
    from sim.results.answer import finite

    silence()
    bases, questions = Bases(Base(**{**base, "words": tuple(base["words"])})), Questions()
    questions.warm(bases)
    line = "{}"
    while line:
        print(line, file=answers, flush=True)
        if asked := sys.stdin.readline():
            line = json.dumps(finite(_answered(questions, bases, *json.loads(asked))))
        else:
            line = ""


def _answered(questions: Any, bases: Any, name: str, asked: Any) -> Any:
    """Return the answer to a question; a question that was stopped has its results so far."""
    from sim.config.stopping import kept

    found = {"fault": "stopped before anything was found"}
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with kept():
            found = questions.ask(bases, name, asked)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return found


if __name__ == "__main__":
    main()
