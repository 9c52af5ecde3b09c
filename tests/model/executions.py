"""How a rank executes a model in the tests of what recipes and adapters change."""

from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.lora import Lora
from sim.model.precision import Recipe
from sim.model.transformer import Transformer


def fused(
    model: Transformer, *, recipe: Recipe | None = None, lora: Lora | None = None, **sharding
) -> Execution:
    """In bf16, gradients added up by the products that make them."""
    return Execution(
        model=model,
        microbatch=1,
        sharding=Sharding(**sharding),
        precision="bf16",
        fusion=Fusion(gradients="fused"),
        recipe=recipe,
        lora=lora,
    )
