"""``clockhands extend --pictures``: what it writes, and one sentence for what it cannot do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clockhands.cli import main
from tests.extension.pictures.tiny import save_pictures, save_vit


def test_a_larger_grid_is_written_or_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_vit(Path("vit"))
    save_pictures(Path("some"), 5)
    assert main(["extend", "vit", "--to", "2x", "--pictures", "some", "--out", "larger", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in findings["items"]] == ["extend.pictures", "extend.grid"]
    assert Path("larger/report/index.html").is_file()
    for words, said in (
        (["vit", "--to", "1x"], "is the 16 pixels that it reads already"),
        (["vit", "--to", "30"], "30 pixels are no multiple of the patch, 4"),
        (["vit", "--train", "3"], "--pictures and --train do not go together"),
        (["nowhere"], "there is no folder nowhere"),
    ):
        assert main(["extend", *words, "--pictures", "some", "--out", "other"]) in (1, 2)
        assert said in capsys.readouterr().err
        assert not Path("other/config.json").exists()
