"""A file is there whole or not at all."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clockhands.errors import BusyError, DataError
from clockhands.files import (
    LOCK,
    apply_umask,
    find_recipe,
    lock_folder,
    open_growing,
    remove_unfinished,
    write_bytes,
    write_text,
)  # fmt: skip


def test_writes_and_makes_folders(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a" / "b.txt", "β")
    assert path.read_bytes() == "β".encode()


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.txt"
    path.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(DataError, match=r"^cannot write .*old\.txt: No space left on device$"):
        write_bytes(path, b"new")
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["old.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        write_text(tmp_path / "file" / "inside.txt", "x")


def test_a_recipe_of_ours_is_found_from_any_folder_and_never_instead_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ours = Path(__file__).parent.parent / "recipes" / "numbers.toml"
    assert find_recipe("recipes/numbers.toml").samefile(ours)
    for other in ("recipes/none.toml", "numbers.toml", "elsewhere/recipes/numbers.toml", "a\0b"):
        assert find_recipe(other) == Path(other)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "numbers.toml").symlink_to(tmp_path / "nowhere")
    assert find_recipe("recipes/numbers.toml") == Path("recipes/numbers.toml"), "a broken link is a file of the user's"


def test_a_growing_file_can_be_followed_and_takes_its_name_at_the_end(tmp_path: Path) -> None:
    path, part = tmp_path / "out.txt", tmp_path / "out.txt.part"
    path.write_text("old")
    with open_growing(path) as write:
        for count, line in enumerate(("β", "", "c"), 1):
            write(line)
            assert part.read_text("utf8").count("\n") == count
        assert path.read_text() == "old"
    assert path.read_text("utf8") == "β\n\nc\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]


def test_a_disk_that_is_full_is_told_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "out.txt.part").symlink_to("/dev/full")
    said = pytest.raises(DataError, match=r"cannot write .*out\.txt\.part: No space left")
    with said, open_growing(tmp_path / "out.txt") as write:
        write("a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("lines", "left"), [(["a", "b"], ["out.txt.part"]), ([], [])])
def test_what_stops_early_keeps_its_lines_under_another_name(lines: list[str], left: list[str], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_growing(tmp_path / "out.txt") as write:
        for line in lines:
            write(line)
        raise KeyboardInterrupt
    assert [file.name for file in tmp_path.iterdir()] == left
    assert all((tmp_path / name).read_text() == "a\nb\n" for name in left)


def test_a_folder_that_is_not_there_is_named_before_anything_is_done(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"cannot write .*none/out\.txt\.part: No such file"),
        open_growing(tmp_path / "none" / "out.txt"),
    ):
        pytest.fail("nothing is done for a file that cannot be written")


@pytest.fixture(params=[0o022, 0o077, 0o002], ids=oct)
def mode(request: pytest.FixtureRequest) -> Iterator[int]:
    """Under some umask: the permissions of a new file."""
    before = os.umask(request.param)
    yield 0o666 & ~request.param
    os.umask(before)


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_has_the_permissions_of_the_umask(tmp_path: Path, mode: int) -> None:
    assert permissions(write_text(tmp_path / "new.txt", "x")) == mode


def test_what_a_library_kept_to_the_owner_gets_them_too(tmp_path: Path, mode: int) -> None:
    (tmp_path / "below").mkdir()
    for path in (tmp_path / "a", tmp_path / "below" / "b"):
        path.touch(0o600)
    apply_umask(tmp_path)
    assert [permissions(tmp_path / name) for name in ("a", "below/b")] == [mode, mode]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "below"]


def test_only_what_was_left_half_written_is_removed(tmp_path: Path) -> None:
    for name in (".run.json.1234abcd.writing", ".run.json", "run.json", ".other.1234abcd.writing"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path, "run.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.1234abcd.writing", ".run.json", "run.json"]


HOLDER = """
import sys, time
from pathlib import Path
from clockhands.files import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the folder until it is killed."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        try:
            yield child
        finally:
            child.kill()


def in_a_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_a_second_process_is_refused_with_the_name_of_the_first_until_that_is_killed(tmp_path: Path) -> None:
    with another_process(tmp_path / "run") as child:
        named = rf"{tmp_path}/run is in use: process {child.pid} on {re.escape(socket.gethostname())} has written in "
        rest = r"it since 20\d\d-\d\d-\d\d .*; wait until it ends, or choose another"
        with pytest.raises(BusyError, match=named + rest):
            lock_folder(tmp_path / "run", wait=0.05).__enter__()
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert (tmp_path / "run" / LOCK).exists(), "nobody could remove it"
    with lock_folder(tmp_path / "run", wait=0.0):
        assert json.loads((tmp_path / "run" / LOCK).read_text())["process"] == os.getpid()


def test_another_thread_is_refused_and_the_same_one_is_not(tmp_path: Path) -> None:
    found: list[str] = []

    def other() -> None:
        try:
            with lock_folder(tmp_path, wait=0.05):
                found.append("entered")
        except BusyError:
            found.append("refused")

    with lock_folder(tmp_path):
        with lock_folder(tmp_path / "." / "..", wait=0.0), lock_folder(tmp_path, wait=0.0):
            in_a_thread(other)
        in_a_thread(other)
    in_a_thread(other)
    assert found == ["refused", "refused", "entered"]


def test_nothing_stays_of_it(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "kept"):
        (tmp_path / "kept" / "file").touch()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["file"]
    (tmp_path / "empty").mkdir()
    for name in ("unused", "empty"):
        with lock_folder(tmp_path / name):
            pass
    assert not (tmp_path / "unused").exists() and list((tmp_path / "empty").iterdir()) == []


def test_a_lock_whose_words_are_lost_is_one_all_the_same(tmp_path: Path) -> None:
    with another_process(tmp_path):
        (tmp_path / LOCK).write_text("{")
        with pytest.raises(BusyError, match="is in use: another process writes in it; wait"):
            lock_folder(tmp_path, wait=0.0).__enter__()


def test_a_folder_that_cannot_be_made_is_not_locked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/below", "nul\0"):
        with pytest.raises(DataError, match=f"cannot make the folder .*{place}: "):
            lock_folder(tmp_path / place).__enter__()
