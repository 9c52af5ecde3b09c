"""A script that is compiled is recorded as inductor fuses it."""

from collections import Counter
from math import prod

import sim
from sim.recording.memory import Memory
from sim.recording.recording import Recording
from sim.recording.work import work_of
from tests.capture.conftest import Capture

EAGER = """
dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(Model().to("cuda"), device_ids=[0])
train(model)
"""
COMPILED = EAGER.replace("Model()", "torch.compile(Model())")


def launched(own: Recording) -> Counter[str]:
    return Counter(own.operators[e.operator].name for e in own.events if e.kind == "kernel")


def test_a_compiled_script_has_fewer_kernels_and_the_same_products(captured: Capture) -> None:
    eager, compiled = captured(EAGER), captured(COMPILED)
    assert work_of(compiled) == work_of(eager)
    assert compiled.notes == ()
    before, after = launched(eager), launched(compiled)
    assert after.total() < before.total()
    same = {"aten.mm", "aten._scaled_dot_product_flash_attention", "aten._fused_adamw_"}
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert not {"aten.gelu", "aten.native_layer_norm", "aten.embedding"} & {*after}
    steps = [
        sim.run(sim.RecordedScenario(record=(one,), topology="dgx-h100-ndr")).step_time
        for one in (compiled, eager)
    ]
    assert steps[0] < steps[1]


def test_what_is_fused_moves_its_ends_alone(captured: Capture) -> None:
    """GELU behind a product: reads what the product made, writes what the next one reads."""
    own = captured(COMPILED)
    (gelu,) = (one for one in own.operators if one.name.endswith("__unsafe_view_gelu"))
    (read,), (written,) = gelu.inputs, gelu.outputs
    assert read.dtype == written.dtype == "bfloat16"
    assert prod(read.shape) == prod(written.shape) == 4 * 128 * 4 * 256


def test_ddp_reduces_the_gradients_of_a_compiled_model(captured: Capture) -> None:
    def reduced(own: Recording) -> list[float]:
        return [e.bytes for e in own.events if e.kind == "collective"]

    assert reduced(captured(COMPILED)) == reduced(captured(EAGER))


def test_a_compiled_model_keeps_less_for_its_backward_pass(captured: Capture) -> None:
    kept = [Memory(captured(end)).peak().allocated for end in (COMPILED, EAGER)]
    assert kept[0] < kept[1]
