"""``tour`` as a person types it, shortened: what it prints, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.cli import main
from clockhands.findings import Findings
from clockhands.report import write
from tests.cli.conftest import Capture
from tests.studies.tour.short import make_tour


def test_the_tour_says_what_it_does_and_where_its_page_is(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: Capture
) -> None:
    out = make_tour(tmp_path_factory)
    printed, said = ((out.parent.parent / name).read_text("utf8") for name in ("printed.txt", "said.txt"))
    assert f"The page: {out / 'report.html'}\n" in printed
    assert printed.endswith(f'Translate more:  clockhands translate {out} "zweihundertdrei"\n')
    assert f"made the folder {out.parent}, which was not there" in said
    assert "<html" in (out / "report.html").read_text("utf8")[:200]
    drawn = write(Findings.load(out / "findings.json"), tmp_path)[0].read_text("utf8")
    assert "<html" in drawn[:200], "every figure of the tour can be drawn"
    assert main(["tour", "--out", str(out), "--quiet"]) == 2
    assert "already holds a run" in capsys.readouterr().err
