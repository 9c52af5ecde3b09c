"""A script sees what it does to files, and files of before stay as they are."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.jobs.capturing.files import Overlay
from sim.jobs.capturing.patches import Patches

NAMES = ("last.pt", "best.pt", "run/a.pt", "run/deep/b.pt", "new/c.pt")
FOLDERS = ("run", "run/deep", "new", "old")
BEFORE = ("last.pt", "run/a.pt", "run/deep/b.pt")


def write(one: str, other: str) -> None:
    with open(one, "w") as file:
        file.write(f"{other}, anew")


def append(one: str, other: str) -> None:
    if os.path.isfile(one) and one not in BEFORE:  # those are changed in place
        with open(one, "a") as file:
            file.write("more")


def create(one: str, other: str) -> None:
    os.close(os.open(one, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def once(one: str, other: str) -> None:
    Path(one).open("x").close()


def copy(one: str, other: str) -> None:
    shutil.copy2(one, other)


def on_files(act: Callable[[str, str], object]) -> st.SearchStrategy[tuple[object, str, str]]:
    return st.tuples(st.just(act), st.sampled_from(NAMES), st.sampled_from(NAMES))


def on_folders(act: Callable[[str, str], object]) -> st.SearchStrategy[tuple[object, str, str]]:
    return st.tuples(st.just(act), st.sampled_from(FOLDERS), st.sampled_from(FOLDERS))


ACTS = st.lists(
    st.one_of(
        *map(on_files, (write, append, create, once, copy)),
        on_files(lambda one, other: os.remove(one)),
        on_files(lambda one, other: os.replace(one, other)),
        on_folders(lambda one, other: os.rename(one, other)),
        on_folders(lambda one, other: os.mkdir(one)),
        on_folders(lambda one, other: os.rmdir(one)),
        on_folders(lambda one, other: shutil.rmtree(one)),
        on_folders(lambda one, other: shutil.copytree(one, other)),
    ),
    max_size=12,
)


@contextmanager
def overlaid() -> Iterator[Overlay]:
    patches, overlay = Patches(), Overlay()
    overlay.install(patches)
    try:
        yield overlay
    finally:
        patches.restore()


@contextmanager
def at(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def filled(folder: str) -> None:
    for name in BEFORE:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} of a real run")
        os.utime(path, (1e9, 1e9))


def seen() -> dict[str, str | None]:
    """Files of the working folder with their text, and folders."""
    found: dict[str, str | None] = {}
    for folder, folders, files in os.walk("."):
        for name in files:
            path = os.path.join(folder, name)
            assert os.path.isfile(path)
            found[path] = Path(path).read_text()
        found |= {os.path.join(folder, name): None for name in folders}
        assert sorted(os.listdir(folder)) == sorted([*files, *folders])
    return found


def done(acts: list[tuple[Callable[[str, str], object], str, str]]) -> list[object]:
    """What a script meets: whether each act fails, and what it sees behind it."""
    met: list[object] = []
    for act, one, other in acts:
        try:
            act(one, other)
        except OSError:
            met.append("refused")
        met.append(seen())
    return met


@settings(max_examples=20, deadline=None)
@given(ACTS)
def test_a_script_sees_what_it_would_and_files_of_before_stay(
    acts: list[tuple[Callable[[str, str], object], str, str]],
) -> None:
    with TemporaryDirectory() as real, TemporaryDirectory() as own:
        for folder in (real, own):
            filled(folder)
        with at(real):
            expected = done(acts)
        with at(own):
            with overlaid():
                assert done(acts) == expected
            for name in BEFORE:
                assert Path(name).read_text() == f"{name} of a real run"
                assert os.stat(name).st_mtime == 1e9


def test_new_files_are_written_where_the_script_writes_them(tmp_path: Path) -> None:
    with overlaid(), open(tmp_path / "log.txt", "w") as file:
        file.write("loss 2.0")
    assert (tmp_path / "log.txt").read_text() == "loss 2.0"


def test_nothing_stays_patched_and_the_overlay_is_removed(tmp_path: Path) -> None:
    usual = os.stat, os.scandir, open, shutil.rmtree
    with overlaid() as overlay:
        place = overlay.new(tmp_path / "last.pt")
        Path(place).write_text("content")
    assert (os.stat, os.scandir, open, shutil.rmtree) == usual
    assert not os.path.exists(place)


def test_a_link_to_the_last_checkpoint_is_renewed(tmp_path: Path) -> None:
    filled(str(tmp_path))
    with at(str(tmp_path)):
        os.symlink("run/a.pt", "latest")
        os.utime("latest", (1e9, 1e9), follow_symlinks=False)
        with overlaid() as overlay:
            Path(overlay.new("run/new.pt")).write_text("new")
            os.unlink("latest")
            with pytest.raises(FileNotFoundError):
                Path("latest").read_text()
            os.symlink("run/new.pt", "latest")
            assert Path("latest").read_text() == "new"
        assert Path("latest").read_text() == "run/a.pt of a real run"
