"""Low-rank adapters (Hu et al. 2021): which linear layers of a frozen model have them."""

from typing import Annotated, Literal, get_args

from sim.config.dataclass import dataclass
from sim.config.units import Ge

Module = Literal["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]

# Megatron-LM's name of a linear layer by the name of its operator.
_OPERATORS: dict[str, Module] = {
    "qkv": "linear_qkv",
    "attention output": "linear_proj",
    "ffn in": "linear_fc1",
    "ffn out": "linear_fc2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """y = x W + x A B with A (inputs x `rank`) and B (`rank` x outputs) trained, all else frozen.
    With `dropout` some elements of A's input are dropped. Defaults are NeMo's
    (nemo/collections/llm/peft/lora.py, class LoRA)."""

    rank: Annotated[int, Ge(1)] = 32
    modules: tuple[Module, ...] = get_args(Module)
    dropout: bool = False

    def adapts(self, operator: str) -> bool:
        """Whether the linear layer of this name has an adapter."""
        return self.module_of(operator) in self.modules

    @property
    def usual(self) -> bool:
        """Whether the modules are the default, all that can have an adapter."""
        return self.modules == get_args(Module)

    @staticmethod
    def module_of(operator: str) -> Module | None:
        """Return Megatron-LM's name of a linear layer's operator, or None if the operator cannot
        have an adapter."""
        return _OPERATORS.get(operator)
