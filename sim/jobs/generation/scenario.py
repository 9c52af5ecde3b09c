"""A scenario with a `[generation]` table: prompts that servers answer."""

from dataclasses import field
from typing import Annotated, Any, ClassVar

from sim.config.checked import Checked
from sim.config.dataclass import dataclass
from sim.config.units import Ge, Gt
from sim.jobs.generation.layout import Layout
from sim.jobs.generation.lengths import Lengths
from sim.model.model import Model
from sim.model.transformer import Transformer
from sim.scenario.scenario import BaseScenario, named_columns

Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(Checked):
    """Servers, and the prompts that they answer.

    There are `servers` servers; by default they fill the GPUs. Each has the GPUs of a `layout` and
    runs an `engine`; `tuning` alters single values of the engine's file. Each of `prompts` prompts
    has `answers` answers. Prompts come all at once, or at a `rate` (prompts/s; exponential
    intervals). All answers to a prompt go to the server with the fewest answers to write, which
    computes the prompt once.
    """

    prompts: Count
    answers: Count = 1
    rate: Annotated[float, Gt(0)] | None = None
    prompt: Lengths
    answer: Lengths
    engine: str = "vllm"
    tuning: dict[str, Any] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    servers: Count | None = None
    seed: Natural = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationScenario(BaseScenario):
    """A model that answers prompts on `gpus` GPUs."""

    kind: ClassVar[str] = "sim.jobs.generation.kind"

    model: str | Transformer | Model
    generation: Generation

    def __post_init__(self) -> None:
        BaseScenario.__post_init__(self)
        for key in ("stack", "tokens", "checkpoints", "loader", "jitter"):
            if getattr(self, key):
                raise ValueError(f"{key} is a key of training: leave {key} out")

    @property
    def layout(self) -> Generation:
        return self.generation

    @property
    def columns(self) -> dict[str, Any]:
        plan = self.generation
        layout = {f"layout.{key}": getattr(plan.layout, key) for key in ("tp", "pp", "dp", "ep")}
        return named_columns(self) | {"engine": plan.engine, "prompts": plan.prompts, **layout}
