"""The version of the checks follows what they compute, and not how they are told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clockhands.checking import code_version


def identify(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(code_version, "__file__", str(root / "code_version.py"))
    code_version.identify_code.cache_clear()
    try:
        return code_version.identify_code()
    finally:
        monkeypatch.undo()
        code_version.identify_code.cache_clear()


def test_a_comment_changes_nothing_and_a_number_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checks"
    folder.mkdir()
    (folder / "shift.py").write_text('"""A law."""\n\n\ndef shift():\n    """Return five."""\n    return 5\n')
    first = identify(tmp_path, monkeypatch)
    (folder / "shift.py").write_text(
        '"""Another."""\n\n\ndef shift():\n    """Say five."""\n    return 5  # as before\n'
    )
    assert identify(tmp_path, monkeypatch) == first
    (folder / "shift.py").write_text('"""A law."""\n\n\ndef shift():\n    """Return five."""\n    return 6\n')
    second = identify(tmp_path, monkeypatch)
    (folder / "sizes.toml").write_text("heads = 4\n")
    assert len({first, second, identify(tmp_path, monkeypatch)}) == 3
    shutil.rmtree(folder)
