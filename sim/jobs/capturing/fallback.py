"""What inductor fails to compile runs as the script has it."""

from collections.abc import Callable
from typing import Any


class Fallback:
    """Makes `compile_fx` answer where inductor fails; `note` is told so, with the `place`."""

    def __init__(
        self, inductor: Any, failed: Any, note: Callable[[str], int], place: Callable[[], str]
    ) -> None:
        self.compile, self.each = inductor.compile_fx, inductor.compile_fx_inner
        self.boxed, self.failed = inductor.make_boxed_func, failed
        self.note, self.place = note, place

    def compiled(self, graph: Any, *args: Any, **given: Any) -> Any:
        """A graph, compiled forward and back, or itself.

        Its backward graph is compiled after its first forward pass; where that fails, that pass
        goes back uncompiled through what was derived for inductor, and later ones are the
        script's own from their beginning.
        """
        place, broken = self.place(), []

        def told(error: Exception) -> None:
            said = str(error).splitlines()[0][:160]
            self.note(f"{place}: recorded without torch.compile, which fails ({said})")

        def each(part: Any, *rest: Any, **own: Any) -> Any:
            try:
                return self.each(part, *rest, **own)
            except self.failed as error:
                if not own.get("is_backward"):
                    raise
                told(error)
                broken.append(part)
                return self.boxed(part.forward)

        def run(*inputs: Any) -> Any:
            return (graph if broken else made)(*inputs)

        try:
            made = self.compile(graph, *args, **{"inner_compile": each, **given})
        except self.failed as error:
            told(error)
            return graph
        return run
