"""A file is there whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from clockhands.errors import DataError
from clockhands.files import (
    DEEPEST,
    LARGEST_SETTINGS,
    apply_umask,
    check_readable,
    find_recipe,
    open_growing,
    read_toml,
    remove_unfinished,
    write_bytes,
    write_text,
)


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


def test_toml_is_read_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + b"[training]\nmax_steps = 3\n")
        assert read_toml(path) == {"training": {"max_steps": 3}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = " + b"[" * 5000 + b"]" * 5000, "nests tables or lists more than"),
        (b"[" + b".".join([b"a"] * 5000) + b"]\nb = 1", "nests tables or lists more than"),
        (b"a = " + b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), "nests tables or lists more than"),
        (b"a = " + b"9" * 5000, "is not TOML"),
        (b"a = 'caf\xe9'", "is not TOML"),
        (b"a = 1\x00", "is not TOML"),
        (b"#" * (LARGEST_SETTINGS + 1), "is larger than"),
    ],
)
def test_what_is_no_file_of_settings_is_one_message(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_toml(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("name", "message"), [("none.toml", "No such file"), (".", "Is a directory"), ("a\0b", "null")]
)
def test_a_file_of_settings_that_cannot_be_read(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=f"cannot read the plan .*{message}"):
        read_toml(f"{tmp_path}/{name}", "the plan")


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become somebody else")
def test_a_file_that_may_not_be_read_is_told_from_one_that_is_missing(shared_place: Path) -> None:
    (shared_place / "closed").touch(0o600)
    check_readable(shared_place / "closed", shared_place / "missing")
    os.seteuid(65534)
    try:
        with pytest.raises(PermissionError, match=r"Permission denied: .*closed"):
            check_readable(shared_place / "missing", shared_place / "closed")
    finally:
        os.seteuid(0)


@pytest.fixture
def shared_place() -> Iterator[Path]:
    """A folder that everybody may enter; nobody else may enter ``tmp_path``."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
