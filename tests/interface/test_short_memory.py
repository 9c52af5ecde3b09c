"""Where memory ends while a file is read or written: one line, and nothing half written."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

RECORDING = (
    Path(__file__).parents[1] / "jobs/capturing/recordings/torchtitan-8b-8192-selective.json.gz"
)
ENOUGH = 1 << 30  # bytes of address space
STARTED = 280 << 20  # below it the interpreter does not always load


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="an address space has no limit elsewhere")
def test_a_command_without_memory_says_so_in_a_line_or_answers(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(f'record = "{RECORDING}"\ntopology = "dgx-h100-ndr"\n')
    command = [sys.executable, "-m", "sim", "run", "job.toml", "--trace", "trace.json"]
    ends = set()
    for size in (*range(STARTED, 440 << 20, 16 << 20), ENOUGH):
        said = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda size=size: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
        )
        written = tmp_path / "trace.json"
        ends.add(said.returncode)
        if said.returncode == 0:
            json.loads(written.read_text())
            written.unlink()
            continue
        assert said.returncode == 2, said.stderr
        assert len(said.stderr.splitlines()) == 1, said.stderr
        assert "this needs more memory than there is" in said.stderr
        assert {path.name for path in tmp_path.iterdir()} == {"job.toml"}
    assert ends == {0, 2}
