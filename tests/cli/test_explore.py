"""`clockhands explore` writes one page, overwrites nothing unasked, and refuses by name what cannot run."""

from __future__ import annotations

import html
from pathlib import Path

from clockhands.cli import main
from tests.cli.conftest import Capture
from tests.exploring.conftest import translator as translator
from tests.exploring.models import make_run


def test_a_run_becomes_a_page_once(translator, tmp_path: Path, capsys: Capture) -> None:  # type: ignore[no-untyped-def]
    page = tmp_path / "page.html"
    words = ["explore", str(translator.path), "--out", str(page), "--device", "cpu"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert f"The page: {page}" in out and "1 live model)" in out and "measuring translator" in err
    before = page.read_bytes()
    assert main(words) == 2
    assert "exists; name another file, or pass --overwrite" in capsys.readouterr().err
    assert main([*words, "--overwrite", "--quiet"]) == 0
    assert page.read_bytes() == before and capsys.readouterr().err == ""


def test_what_cannot_run_is_told_and_nothing_is_written(tmp_path: Path, capsys: Capture) -> None:
    make_run(tmp_path / "run", encoder="kerple", decoder="kerple")
    capsys.readouterr()
    assert main(["explore", str(tmp_path / "run"), "--out", str(tmp_path / "page.html"), "--quiet"]) == 2
    assert "encoder.scheme = 'kerple': the page computes none" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_with_a_sentence_it_is_recorded_instead(tmp_path: Path, capsys: Capture) -> None:
    make_run(tmp_path / "run", encoder="kerple", decoder="kerple")
    words = ["explore", str(tmp_path / "run"), "--text", "Tom bit a dog", "--out", str(tmp_path / "page.html")]
    assert main([*words, "--quiet", "--device", "cpu"]) == 0
    assert "1 recorded model)" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text(encoding="utf8")
    assert "It does not run in a page: encoder.scheme = " in page and "--text 'Tom bit a dog'" in html.unescape(page)
