"""Which line of the script is running, and from which line does a compiled kernel come?

The Python that inductor writes gets a comment before each call: the line whose operators make most
of the bytes of the kernel. The comment also says whether all operators of the kernel belong to the
forward pass; in a backward graph such a kernel is recomputation.
"""

import linecache
import re
import sys
from bisect import bisect_right
from collections import Counter
from importlib import import_module
from typing import Any

from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches
from sim.jobs.capturing.refusals import of_script

_MARK = re.compile(r"\s*# from (.*) (again|once)$")
_FRAME = re.compile(r'File "(.+)", line (\d+), in ')
_LONGEST = 200  # the most characters of a line's text
_DEEP = 12  # the most frames of torch and `sim` between inductor's Python and an operator

# The line of a call in inductor's file, the number of the script's line in the log, and whether the
# call only runs operators of the forward pass.
Marks = list[tuple[int, int, bool]]


class SourceLines:
    """Gives the numbers of the script's lines in a log."""

    def __init__(self, folder: str, log: Log) -> None:
        self.folder, self.log = folder, log
        self._places: dict[int, tuple[Any, str]] = {}  # by code: its file, "" outside the script
        self._numbers: dict[tuple[int, int], int] = {}
        self._marks: dict[str, Marks] = {}  # by file that inductor has written

    def __call__(self) -> int:
        """The script's present line; -1 if no line of the script is running."""
        if (fused := self.fused()) is not None:
            return fused[0]
        frame: Any = sys._getframe(1)
        while frame is not None:
            code = frame.f_code  # known by its identity, as hashing it is slow
            known_place = self._places.get(id(code))
            if known_place is None:
                known_place = self._places[id(code)] = code, self._place_of(code.co_filename)
            if place := known_place[1]:
                known = id(code), frame.f_lineno
                if known not in self._numbers:
                    self._numbers[known] = self.log.lines.number(f"{place}:{frame.f_lineno}")
                return self._numbers[known]
            frame = frame.f_back
        return -1

    def calling(self, code: Any) -> str:
        """The script's line that leads to the outermost running call of this code; "" for none."""
        frame: Any = sys._getframe(1)
        inside, found = False, ""
        while frame is not None:
            if frame.f_code is code:
                inside, found = True, ""
            elif inside and not found and (place := self._place_of(frame.f_code.co_filename)):
                found = f"{place}:{frame.f_lineno}"
            frame = frame.f_back
        return found

    def fused(self) -> tuple[int, bool] | None:
        """The line from which a kernel of a compiled graph comes, and whether all its operators
        belong to the forward pass; None outside of compiled graphs."""
        if not self._marks:
            return None
        frame: Any = sys._getframe(1)
        for _ in range(_DEEP):
            if frame is None:
                return None
            marks = self._marks.get(frame.f_code.co_filename)
            if marks is not None:
                place = bisect_right(marks, frame.f_lineno, key=lambda mark: mark[0])
                return marks[place - 1][1:] if place else None
            frame = frame.f_back
        return None

    def install(self, patches: Patches) -> None:
        """Patch inductor to write a mark before each call; read the marks of each written file."""
        codecache = import_module("torch._inductor.codecache").PyCodeCache
        write = codecache.write

        def written(*args: Any, **given: Any) -> Any:
            key, path = write(*args, **given)
            self.read(path)
            return key, path

        patches.set(codecache, "write", staticmethod(written))
        scheduler = import_module("torch._inductor.scheduler").Scheduler
        patches.set(scheduler, "enter_context", lambda _, node: self.mark(node))

    def mark(self, node: Any) -> None:
        """Write a comment with the line from which a call comes, before the call."""
        inner = (part.node for part in node.get_nodes() if part.node is not None)
        origins = [origin for buffer in inner for origin in _origins(buffer)]
        weights = Counter[str]()
        for origin in origins:
            if place := self._of_trace(origin.meta.get("stack_trace") or ""):
                weights[place] += _made(origin)
        if weights:
            tags = {
                origin.meta.get("partitioner_tag")
                for origin in origins
                if origin.op != "placeholder"
            }
            often = "again" if tags == {"is_forward"} else "once"
            wrapper = import_module("torch._inductor.virtualized").V.graph.wrapper_code
            wrapper.writeline(f"# from {weights.most_common(1)[0][0]} {often}")

    def read(self, path: str) -> None:
        """Read the marks of a file that inductor has written."""
        linecache.checkcache(path)
        found = ((n, _MARK.match(text)) for n, text in enumerate(linecache.getlines(path), 1))
        self._marks[path] = [
            (n, self.log.lines.number(match[1]), match[2] == "again") for n, match in found if match
        ]

    def _place_of(self, file: str) -> str:
        return file.removeprefix(self.folder).lstrip("/") if of_script(file, self.folder) else ""

    def _of_trace(self, trace: str) -> str:
        """The innermost line of the script in a stack trace."""
        frames = ((self._place_of(file), line) for file, line in _FRAME.findall(trace))
        places = [f"{place}:{line}" for place, line in frames if place]
        return places[-1] if places else ""


def text_of(folder: str, line: str) -> str:
    """The text of a line ("train.py:12") of a script in a folder."""
    file, _, number = line.rpartition(":")
    path = file if file.startswith("/") else f"{folder}/{file}"
    return linecache.getline(path, int(number)).strip()[:_LONGEST] if number.isdigit() else ""


def _origins(buffer: Any) -> Any:
    """The nodes from which a buffer comes; for an operator of torch, only its own node."""
    extern = isinstance(buffer, import_module("torch._inductor.ir").ExternKernel)
    alone = buffer.get_origin_node() if extern else None
    return [alone] if alone is not None else buffer.get_origins()


def _made(node: Any) -> int:
    """The bytes of a node's results, as its weight. A view, or a result with symbolic sizes, weighs
    1."""
    values = node.meta.get("val")
    if getattr(node.target, "is_view", False):
        return 1
    sizes = [_size(value) for value in (values if isinstance(values, tuple) else (values,))]
    return max(sum(sizes), 1)


def _size(value: Any) -> int:
    sizes = getattr(value, "shape", ())
    known = sizes and all(isinstance(n, int) for n in sizes)
    return int(value.numel() * value.element_size()) if known else 0
