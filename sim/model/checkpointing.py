"""Recomputation as a software stack offers it: operators of a layer that run again, by name."""

from collections.abc import Iterable
from dataclasses import field, replace
from typing import Literal

from sim.config.dataclass import dataclass

NONE, SELECTIVE, FULL = MODES = ("none", "selective", "full")

Names = str | tuple[str, ...]  # one of these words, or names of modules or operators
Saved = Literal["mm", "attention", "reduce_scatter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The operators that run `again`, by names of operators or modules; "full" means all.

    Results that `saves` names are kept, so their operators do not run again. The exception is every
    `again_mm`-th matrix product of a layer (torchtitan's selective recomputation by operator).
    `early_stop` leaves out operators whose results the backward pass does not read
    (torch.utils.checkpoint without `use_reentrant`). `functions` says that operators are written in
    Python and save their inputs only by running (torch.autograd.Function). Then operators that keep
    an input run again despite `early_stop`.
    """

    again: tuple[str, ...] = ()
    saves: tuple[Saved, ...] = ()
    again_mm: int = 0
    early_stop: bool = False
    functions: bool = False

    def chosen(self, names: Iterable[str]) -> str | None:
        """Return the name by which the rule lets an operator with `names` run again, or None."""
        return next((name for name in self.again if name == FULL or name in names), None)


NOTHING = Rule()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """What a software stack means by `selective` recomputation, whether it stops early, and whether
    its operators are `functions` (`Rule`).

    The operators in `least` run again even if the plan asks for no recomputation.

    With `on_host`, the inputs of layers that run again as a whole are kept in the host's memory, a
    share from every tensor-parallel rank (DeepSpeed's cpu_checkpointing and partition_activations,
    deepspeed/runtime/activation_checkpointing/checkpointing.py).
    """

    selective: Rule = field(default_factory=lambda: Rule(again=("core_attn",)))
    least: tuple[str, ...] = ()
    early_stop: bool = False
    functions: bool = False
    on_host: bool = False

    def rule(self, recompute: Names) -> Rule:
        """Return the rule for "none", "selective", "full", or names of modules or operators.

        >>> Checkpointing().rule("selective").again, Checkpointing().rule("none").again
        (('core_attn',), ())
        """
        names = (recompute,) if isinstance(recompute, str) else recompute
        names = self.least if names == (NONE,) else names
        rule = self.selective if names == (SELECTIVE,) else Rule(again=names)
        stops = replace(rule, early_stop=self.early_stop, functions=self.functions)
        return stops if names else NOTHING
