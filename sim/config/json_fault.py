"""The fault of a text that is no JSON."""

import json


def json_fault(error: ValueError | RecursionError) -> tuple[int, str]:
    """The line and the fault of a text that `json.loads` refuses: for its grammar, for a number of
    thousands of digits, or for brackets nested thousands deep.

    >>> json_fault(json.JSONDecodeError("Expecting value", "[,]", 1)), json_fault(RecursionError())
    ((1, 'is not JSON (Expecting value)'), (1, 'is not JSON that can be read'))
    """
    if isinstance(error, json.JSONDecodeError):
        return error.lineno, f"is not JSON ({error.msg})"
    return 1, "is not JSON that can be read"
