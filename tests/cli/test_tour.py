"""``tour`` as a person types it, shortened: what it prints, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.cli import main
from tests.studies.tour.short import shorten_tour


def test_the_tour_says_what_it_does_and_where_its_page_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shorten_tour(monkeypatch)
    out = tmp_path / "made" / "tour"
    assert main(["tour", "--out", str(out)]) == 0
    printed, said = capsys.readouterr()
    assert f"The page: {out / 'report.html'}\n" in printed
    assert printed.endswith(f'Translate more:  clockhands translate {out} "zweihundertdrei"\n')
    assert f"made the folder {out.parent}, which was not there" in said
    assert "<html" in (out / "report.html").read_text("utf8")[:200]
    assert main(["tour", "--out", str(out), "--quiet"]) == 2
    assert "already holds a run" in capsys.readouterr().err
