"""The tour: short for the form of what it says, whole (slow) for what it claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import clockhands
from clockhands.cli import main
from clockhands.errors import UsageError
from clockhands.findings import Finding, Findings
from tests.studies.tour.short import make_tour

ROOT = Path(__file__).resolve().parents[3]


def test_every_part_is_there_and_the_run_is_usable(tmp_path_factory: pytest.TempPathFactory) -> None:
    tour = make_tour(tmp_path_factory)
    findings = Findings.load(tour / "findings.json")
    names = [finding.name for finding in findings]
    assert names == [
        "tour.order", "tour.exact", "tour.examples", "tour.curves", "encoding.heatmap", "table.hands",
        "encoding.circle", "encoding.wavelengths", "table.similarity", "encoding.rotation", "loudness.scale",
        "logits.layers", "heads.positional", "survival", "cause", "tour.roles", "tour.attention",
    ]  # fmt: skip
    assert all(finding.verdict and finding.light != "skip" for finding in findings)
    assert findings.to_json() == (tour / "findings.json").read_text("utf8")
    assert "Tom bit a dog" in (tour / "report.html").read_text("utf8")
    assert (tour / "model.safetensors").is_file()
    assert (tour / "variants" / "no-scale" / "recipe.toml").is_file()
    with pytest.raises(UsageError, match="already holds a run"):
        clockhands.tour(tour)


def quote(page: Path, finding: Finding) -> str:
    """What a page shows below the question of a finding, up to the next sign."""
    return re.split(r"\n ?[✓•!✕–.]", page.read_text("utf8").split(finding.question)[1])[0]


def read_percentages(text: str) -> list[float]:
    """The numbers before a percent sign."""
    return [float(number) for number in re.findall(r"(\d+(?:\.\d+)?)\s+%", text)]


@pytest.mark.slow
def test_the_whole_tour_shows_what_it_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tour", "--out", str(tmp_path / "tour"), "--quiet"]) == 0
    findings = Findings.load(tmp_path / "tour" / "findings.json")
    exact = {row[0]: row[1] for row in findings["tour.exact"].table.rows}
    assert exact["as in the paper"] > 99
    assert exact["no positions"] < 30, "a person sees it at once"
    assert (
        "A model that ignores word order can get at most 21.6 % of these items right" in findings["tour.exact"].verdict
    )
    assert exact["no √d scale"] < exact["as in the paper"], "later: how far it is differs from seed to seed"
    assert "it learns later, not never" in findings["tour.exact"].verdict
    with_positions, without = findings["tour.roles"].table.rows
    assert with_positions[1] > 88
    # The ceiling is that of all sentences; a thousand of them may be a little easier.
    assert without[1] <= findings["tour.roles"].references[0].value + 4 < 32, "a person sees it at once"
    assert (with_positions[4], without[4]) == (100, 0)
    for finding in (findings["tour.exact"], findings["tour.roles"]):
        for page in (ROOT / "README.md", ROOT / "docs" / "tutorials" / "tour.md"):
            assert read_percentages(finding.verdict) == pytest.approx(read_percentages(quote(page, finding)), abs=5)
    assert "The page:" in capsys.readouterr().out
    assert main(["translate", str(tmp_path / "tour"), "zweihundertdrei"]) == 0
    assert capsys.readouterr().out == "two hundred and three\n"
