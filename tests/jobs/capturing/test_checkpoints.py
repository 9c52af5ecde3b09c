"""A script finds again what it has saved, though nothing is written."""

import os
import sys
from pathlib import Path

import pytest

from tests.jobs.capturing.conftest import Capture

SAVING = """
import io, os, shutil
from pathlib import Path
net = Model().to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
if os.path.exists("best.pt"):
    os.replace("best.pt", "best-before.pt")
shutil.rmtree("checkpoint-1")
for step in range(2):
    net(torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda")).mean().backward()
    optimizer.step()
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    Path("new").mkdir()
    torch.save(state, "new/tmp.pt")
    assert os.path.getsize("new/tmp.pt") > 0
    os.rename("new", f"of_{step}")
    if os.path.exists("last.pt"):
        os.unlink("last.pt")
    Path(f"of_{step}/tmp.pt").rename("last.pt")
    os.link("last.pt", "linked.pt")
    shutil.copyfile("last.pt", "best.pt")
    os.replace("linked.pt", "named.pt")
    shutil.copy("named.pt", f"of_{step}")
    assert not os.path.exists("linked.pt") and Path(f"of_{step}/named.pt").is_file()
    os.remove("named.pt")
    loaded = torch.load("best.pt", map_location="cpu")
    assert loaded["step"] == step and loaded["model"]["head.weight"].shape == (VOCABULARY, WIDTH)
    net.load_state_dict(loaded["model"])
    optimizer.load_state_dict(torch.load("last.pt")["optimizer"])
    assert net.head.weight.is_cuda
    with open("opened.pt", "wb") as file:
        torch.save(state, file)
    assert torch.load("opened.pt")["step"] == step
    with open("opened.pt", "rb") as file:
        assert torch.load(file)["step"] == step
    bytes_of = io.BytesIO()
    torch.save(state, bytes_of)
    Path("written.pt").write_bytes(bytes_of.getvalue())
"""


def test_checkpoints_are_renamed_copied_and_loaded_and_files_stay_as_they_are(
    captured: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"last.pt", "best.pt", "best-before.pt", "opened.pt", "written.pt", "checkpoint-1/a.pt"}
    (tmp_path / "checkpoint-1").mkdir()
    for name in names:
        (tmp_path / name).write_text("of a real run")
        os.utime(tmp_path / name, (1e9, 1e9))
    own = captured(SAVING, world=1)
    assert any("a checkpoint is not written" in note for note in own.notes)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {str(path.relative_to(tmp_path)) for path in files} == names
    assert {path.read_text() for path in files} == {"of a real run"}


SAFETENSORS = """
from safetensors.torch import load_file, save_file
net = Model().to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    net(torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda")).mean().backward()
    optimizer.step()
    save_file(net.state_dict(), "model.safetensors", metadata={"format": "pt"})
    loaded = load_file("model.safetensors", device="cuda")
    assert loaded["head.weight"].is_cuda and loaded["head.weight"].shape == (VOCABULARY, WIDTH)
"""


def test_safetensors_of_the_device_are_saved_without_their_memory(
    captured: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lib" / "safetensors"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "torch.py").write_text(
        "def save_file(tensors, filename, metadata=None):\n    raise MemoryError('reads it')\n"
        "load_file = save_file\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    for name in ("safetensors", "safetensors.torch"):  # the stand-in, too, is gone afterwards
        monkeypatch.setitem(sys.modules, name, sys)
        del sys.modules[name]
    monkeypatch.chdir(tmp_path)
    own = captured(SAFETENSORS, world=1)
    assert any("a checkpoint is not written" in note for note in own.notes)
    assert not (tmp_path / "model.safetensors").exists()
