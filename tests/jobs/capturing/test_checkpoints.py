"""A script finds again what it has saved, though nothing is written."""

from pathlib import Path

import pytest

from tests.jobs.capturing.conftest import Capture

SAVING = """
import os, shutil
from pathlib import Path
net = Model().to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
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
"""


def test_checkpoints_are_renamed_copied_and_loaded_and_files_stay_as_they_are(
    captured: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("last.pt", "best.pt"):
        (tmp_path / name).write_text("of a real run")
    own = captured(SAVING, world=1)
    assert any("a checkpoint is not written" in note for note in own.notes)
    assert {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {
        "last.pt": "of a real run",
        "best.pt": "of a real run",
    }
