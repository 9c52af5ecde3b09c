"""Pictures for a journal's column: formats, width, a title for those who cannot see them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.interface.cli.main import main


def asked(*words: str) -> str:
    ran = CliRunner().invoke(main, ["run", "gpt3-175b-megatron", *words])
    assert ran.exit_code in (0, 2)
    return ran.output


def test_a_picture_is_a_vector_of_the_width_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "column.svg"
    asked("--picture", str(path), "--width", "3.4in")
    text = path.read_text()
    assert 'width="244.8pt"' in text  # 3.4 inches of 72 points
    assert "<dc:title>" in text


def test_a_pdf_is_the_same_bytes_again(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.pdf", "b.pdf")]
    for path in paths:
        asked("--picture", str(path), "--width", "86mm")
    assert paths[0].read_bytes().startswith(b"%PDF")
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("width", ["wide", "0in", "3.4", "1e9mm"])
def test_a_width_that_is_none_is_refused(width: str, tmp_path: Path) -> None:
    assert "--width" in asked("--picture", str(tmp_path / "a.png"), "--width", width)
