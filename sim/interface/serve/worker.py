"""A process that answers one of the page's longer questions: `python -m` with its name."""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Answer the question of the command line about the document on standard input, in JSON."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(1))  # while what it needs is loaded
    import json
    from pathlib import Path

    from sim.config import limit, reads
    from sim.config.errors import InputError
    from sim.config.progress import silence
    from sim.config.stopping import kept
    from sim.interface.serve.questions import LONGEST, SLOW

    asked = json.load(sys.stdin)
    silence()
    limit.allow(LONGEST)
    answer: dict[str, Any] = {"fault": "stopped before anything was found"}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with reads.only(map(Path, asked["places"])), kept():
            answer = SLOW[sys.argv[1]](asked["document"], asked["own"])
    except InputError as error:
        answer = {"fault": str(error)}
    except KeyboardInterrupt:
        pass
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
