"""Which step is recorded? A step lies between the ends of two of the script's updates.

An update is one or several optimizer steps after a backward pass. If optimizers take turns, a step
has an update of each optimizer. The second step is recorded if it has the first step's matrix
products, and waits for the device only at lines where the first step waits. Otherwise several steps
are compared, and a step of the most common kind is recorded. A script may mark the ends of steps
itself (`sim.step()`, a profiler's steps, NVTX ranges).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from types import ModuleType
from typing import Any
from weakref import WeakSet

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.jobs.capturing import marks
from sim.jobs.capturing.checked import forgotten, of_model
from sim.jobs.capturing.distributed import WHOLE
from sim.jobs.capturing.log import Cut, Log
from sim.jobs.capturing.patches import Patches
from sim.jobs.recorded.recording import PARTS, Pass
from sim.program.schedule import Kind

_MOST_PASSES = 1024  # backward passes of a script that has no optimizer
_MOST_STEPS = 5  # the most steps that are compared
_MOST_TURNS = 8  # an optimizer that does not step in this many updates is forgotten
_UNENDED = "use a torch.optim.Optimizer, or call sim.step() after each step"
ASIDE = "parts without a gradient"  # begins the keys of products through which no gradient flows


class Enough(BaseException):
    """Raised when the step to record has ended."""


@dataclass
class _Update:
    """Steps of optimizers after a backward pass, and the place in the log where they end."""

    optimizers: list[int] = field(default_factory=list)
    end: Cut | None = None


@dataclass(frozen=True)
class _Step:
    """The end of a step in the log, and the step's matrix products and waits."""

    end: Cut
    products: Counter[str]
    waits: frozenset[int]  # lines at which the host waits for the device

    @property
    def asides(self) -> int:
        """Products through which no gradient flows."""
        return sum(number for key, number in self.products.items() if key.startswith(ASIDE))

    @property
    def learnt(self) -> tuple[int, ...]:
        return tuple(self.products[phase] for phase in ("forward", "backward", "optimizer"))


class StepCounter:
    """Counts updates and steps. A step that an optimizer takes inside another optimizer's step
    belongs to the outer step. `asked` are the first and the last step to record, counted from 1."""

    def __init__(self, torch: Any, log: Log, asked: tuple[int, int] | None = None) -> None:
        self.torch, self.log, self.asked, self.parameters = torch, log, asked, 0
        self._depth, self._passes, self._marked = 0, 0, False
        self._optimizers: dict[int, Any] = {}
        self._made: WeakSet[Any] = WeakSet()
        self._updates: list[_Update] = []
        self._steps: list[_Step] = []
        self._turns: set[int] = set()
        self._doubted: frozenset[int] = frozenset()  # lines where only the second step waited
        self._before = 0  # updates of the steps that have ended

    @property
    def done(self) -> int:
        """How many steps have ended."""
        return len(self._steps)

    @property
    def satisfied(self) -> bool:
        """Whether a step can be recorded."""
        return len(self._steps) >= (self.asked[1] if self.asked else 2)

    @contextmanager
    def counted(self, marked: str = "") -> Iterator[None]:
        """Count steps in this context. Raises `Enough` when the step to record has ended. `marked`
        names the marks of steps (`Choices.marks`)."""
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        def begins(optimizer: Any, *_: Any) -> None:
            if not self._depth:
                self.log.optimizer_begins()
            self._depth += 1
            self._optimizers[id(optimizer)] = optimizer
            self._turns.add(id(optimizer))  # also if it steps within another optimizer

        def ended(optimizer: Any, *_: Any) -> None:
            self._depth -= 1
            if not self._depth:
                self._stepped(id(optimizer))

        patches = Patches()
        made, init = self._made, self.torch.optim.Optimizer.__init__

        def initialised(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            made.add(optimizer)
            self.log.note_place("optimizer")

        patches.set(self.torch.optim.Optimizer, "__init__", initialised)
        patches.set(self.log, "backward_ended", self._passed_back)
        patches.set(self.log, "waited", self._waited)
        _install_marks(self.torch, patches, marked)
        hooks = (register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ended))
        marks.hooks.append(self._mark)
        try:
            yield
        finally:
            marks.hooks.remove(self._mark)
            patches.restore()
            for hook in hooks:
                hook.remove()

    def _passed_back(self) -> None:
        """Count a backward pass that has ended. Raises `InputError` if there is no optimizer after
        many passes."""
        self._passes += 1
        self.log.backwards += 1
        if self._passes == _MOST_PASSES and not self._made and not self._marked:
            fault = f"made no optimizer in {_MOST_PASSES} backward passes: no step ends"
            raise InputError("the script", fault, _UNENDED)

    def _stepped(self, optimizer: int) -> None:
        """Add an optimizer's step, which has ended, to its update."""
        log = self.log
        log.phase = "forward"
        self._name_parts(log)
        if self._passes or not self._updates:
            self._updates.append(_Update())
        self._passes = 0
        log.updates = len(self._updates)
        last = self._updates[-1]
        last.optimizers.append(optimizer)
        last.end = log.cut()
        if self._marked:
            return
        if len(self._updates) == 1:
            self._begin_again()
        elif self._whole(last):
            self._take_turns()

    def _whole(self, update: _Update) -> bool:
        """Whether an update is complete: it has the first update's number of optimizer steps, and
        ends with the same optimizer."""
        first = self._updates[0].optimizers
        return update.optimizers[-1] == first[-1] and len(update.optimizers) >= len(first)

    def _take_turns(self) -> None:
        """End the step once every optimizer has stepped. Optimizers that have not stepped in
        `_MOST_TURNS` updates are forgotten; all work so far then counts as the first step."""
        idle = [optimizer for optimizer in self._made if id(optimizer) not in self._turns]
        if not idle:
            self._ended()
        elif len(self._updates) - self._before > _MOST_TURNS:
            self._made.difference_update(idle)
            self._begin_again()

    def _begin_again(self) -> None:
        """Count all work so far as the first step, which holds the set-up and is not recorded."""
        self._steps.clear()
        self._ended()

    def _mark(self) -> None:
        """End a step because the script marks its end."""
        if not self._marked:
            self._marked = True
            self._begin_again()
        else:
            self._ended()

    def _ended(self) -> None:
        log = self.log
        first = not self._steps
        if not log.began and len(self._steps) + 1 == (self.asked[0] - 1 if self.asked else 1):
            log.begin()
        self._steps.append(_Step(log.cut(), Counter(log.products), frozenset(log.waits)))
        log.products.clear()
        log.waits.clear()
        self._turns.clear()
        self._before = len(self._updates)
        enough = not first and self._enough()
        if enough or len(self._steps) == 2:
            weights = self.weights()
            for note in forgotten(weights):  # called here, because the model may be gone later
                log.notes.number(note)
            self.parameters = of_model(weights) or self.parameters
        if enough:
            log.over = True
            raise Enough

    def _waited(self) -> None:
        """Stop once the third step has waited at every line where the second step waited but the
        first did not. Code after the first update belongs to the second step, so its waits are
        usual."""
        if self._doubted and self._doubted <= self.log.waits:
            self.log.over = True
            raise Enough

    def _enough(self) -> bool:
        if self.asked:
            return len(self._steps) >= self.asked[1]
        first, *rest = self._steps
        last, self._doubted = rest[-1], frozenset()
        if not last.asides and last.learnt == first.learnt:
            if last.waits <= first.waits:
                return True
            if len(rest) == 1:
                self._doubted = last.waits - first.waits
        again = any(_kind(last) == _kind(step) for step in rest[:-1])
        return again or len(rest) == _MOST_STEPS

    def choose(self, script: str, longer: str = "") -> None:
        """Keep only the step to record. Raises `InputError` if this step has not ended; `longer` is
        an option that may let the script take more steps."""
        first, last = self._chosen(script, longer)
        self.log.between(self._steps[first - 2].end, self._steps[last - 1].end)

    def _chosen(self, script: str, longer: str) -> tuple[int, int]:
        """The first and the last step, counted from 1."""
        steps = len(self._steps)
        first, last = self.asked or (2, 2)
        if steps < last:
            words = "took" if steps < 2 else "ended after"
            fault = f"{words} {steps} steps of an optimizer, but step {last} should be recorded"
            usual = f"let it train for {last} steps or more"
            usual = usual if self._optimizers or self._marked else _UNENDED
            if self._optimizers and not self.log.backwards and not self._marked:
                fault = "no backward pass ran, so all steps of its optimizer are a single update"
                usual = "call backward() before each update, or sim.step() after each step"
            raise InputError(
                script, fault, f"{usual}; {longer}" if steps and longer else longer or usual
            )
        if self.asked:
            if last > first:
                self.log.notes.number(
                    f"holds {last + 1 - first} steps of the script, {first} to {last}"
                )
            return self.asked
        rest = self._steps[1:]
        often = Counter(_kind(step) for step in rest)
        best = min(rest, key=lambda step: (-often[_kind(step)], step.asides, len(step.waits)))
        chosen = rest.index(best) + 2
        for number, step in enumerate(rest, 2):
            if step.products != best.products:
                added = {at: n for at, n in step.products.items() if n > best.products[at]}
                words = ", ".join(f"{n:,} in {at}" for at, n in added.items()) or "fewer"
                self.log.notes.number(
                    f"step {chosen} is recorded; step {number} runs other products ({words}): "
                    f"--step {number} records it"
                )
            elif more := sorted(self.log.line(line) for line in step.waits - best.waits):
                self.log.notes.number(
                    f"step {chosen} is recorded; step {number} waits for the device at "
                    f"{', '.join(more)}, too: --step {number} records it"
                )
        return chosen, chosen

    def weights(self) -> list[Any]:
        """The weights of all optimizers that have stepped."""
        held = {
            id(weight): weight
            for optimizer in self._optimizers.values()
            for group in optimizer.param_groups
            for weight in group["params"]
        }
        return list(held.values())

    def _name_parts(self, log: Log) -> None:
        """Say which blocks hold parameters, gradients and the optimizer's state."""
        weights = self.weights()
        self.parameters = sum(int(getattr(weight, WHOLE, weight.numel())) for weight in weights)
        for weight in weights:
            self._name(log, weight, "parameters")
            self._name(log, weight.grad, "gradients")
        for optimizer in self._optimizers.values():
            for state in optimizer.state.values():
                for value in state.values():
                    self._name(log, value, "optimizer")

    def _name(self, log: Log, tensor: Any, part: str) -> None:
        local = getattr(tensor, "_local_tensor", tensor)
        if not isinstance(local, self.torch.Tensor):
            return
        if block := log.block_of(local.untyped_storage()):
            log.parts[block] = PARTS.index(part)


def _install_marks(torch: Any, patches: Patches, marked: str) -> None:
    """Let a profiler's steps, or NVTX ranges whose name begins with a text, mark the ends of
    steps."""
    kind, _, text = marked.partition("=")
    if kind == "profiler" and not text:
        profile = torch.profiler.profile
        patches.set(profile, "step", _marking(profile.step, lambda _: True))
    elif kind == "nvtx" and text:
        for name in ("range_push", "range_start", "mark"):
            usual = getattr(torch.cuda.nvtx, name)
            patches.set(torch.cuda.nvtx, name, _marking(usual, lambda said: said.startswith(text)))
    elif marked:
        raise InputError(f"--marks {marked}", "marks no steps", "write profiler or nvtx=TEXT")


def _marking(usual: Any, ends: Callable[[Any], bool]) -> Any:
    def marking(first: Any, *args: Any, **kwargs: Any) -> Any:
        found = usual(first, *args, **kwargs)
        if ends(first):
            marks.step()
        return found

    return marking


def _kind(step: _Step) -> tuple[frozenset[tuple[str, int]], frozenset[int]]:
    return frozenset(step.products.items()), step.waits


def install_pipelining(patches: Patches, log: Log) -> None:
    """Record to which pass of a pipeline stage each operator belongs.

    All of torch's schedules run passes by the methods in `_METHODS`
    (torch/distributed/pipelining/stage.py). `backward_one_chunk` leaves the gradients of weights to
    `backward_weight_one_chunk` if `full_backward` is false.
    """

    def noted(module: ModuleType) -> None:
        stage = module._PipelineStageBase
        for name, kind in _METHODS.items():
            patches.set(stage, name, _within(getattr(stage, name), kind, log))

    patches.when_imported("torch.distributed.pipelining.stage", noted)


_METHODS: dict[str, Callable[[dict[str, Any]], Kind]] = {
    "forward_one_chunk": lambda _: "F",
    "backward_one_chunk": lambda given: "B" if given.get("full_backward", True) else "I",
    "backward_weight_one_chunk": lambda _: "W",
}


def _within(run: Callable[..., Any], kind: Callable[[dict[str, Any]], Kind], log: Log) -> Any:
    def passed(stage: Any, number: int, *args: Any, **given: Any) -> Any:
        current = Pass(kind=kind(given), microbatch=number, piece=stage.stage_index)
        before, log.within = log.within, log.passes.number(current)
        try:
            return run(stage, number, *args, **given)
        finally:
            log.within = before

    return passed
