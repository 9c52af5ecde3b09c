"""A script's own Triton kernels move bytes; a kernel that multiplies is refused."""

from pathlib import Path

import pytest

from sim.config.errors import InputError
from sim.jobs.capturing.capture import capture_script
from sim.jobs.recorded.kernels import kernel_of

pytest.importorskip("triton")
SCRIPT = """
import torch, triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, WORK, mask=at < n)

layer = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
counts = torch.arange(4, device="cuda")
for _ in range(3):
    x = torch.randn(32, 64, device="cuda")
    y = torch.empty_like(x)
    doubled[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    assert counts.tolist() == [0, 1, 2, 3]
    layer(y).sum().backward()
    optimizer.step()
"""


def test_a_kernel_moves_each_of_its_tensors_once(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("WORK", "2 * tl.load(x + at, mask=at < n)"))
    (own,) = capture_script(path, world=1)
    (launch,) = (operator for operator in own.operators if operator.name == "triton.doubled")
    assert kernel_of(launch).bytes == 2 * 32 * 64 * 4  # type: ignore[union-attr]
    assert "Triton kernel doubled: assumed to move each of its tensors once" in own.notes


def test_a_kernel_that_multiplies_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("WORK", "tl.dot(tl.load(x), tl.load(x))"))
    with pytest.raises(InputError, match="doubled multiplies, and its FLOPs are unknown"):
        capture_script(path, world=1)
