"""The tour: short for the form of what it says, whole (slow) for what it claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from clockhands.cli import main
from clockhands.data import Pair
from clockhands.errors import UsageError
from clockhands.findings import Findings
from clockhands.generation import Translation
from clockhands.report import page
from clockhands.schemes import Sinusoidal
from clockhands.studies.tour import demonstration, encoding_findings, result_findings
from clockhands.studies.tour.variants import TRIALS


def short(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"training.max_steps": 2, "data.train": 600, "data.test": 6, "data.validation": 4, "training.log_steps": 1}
    trials = tuple(replace(trial, changes={**trial.changes, **few}) for trial in TRIALS)
    monkeypatch.setattr(demonstration, "TRIALS", trials)


def test_every_part_is_there_and_the_run_is_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short(monkeypatch)
    findings = demonstration.run_tour(tmp_path / "tour")
    names = [finding.name for finding in findings]
    assert names == [
        "tour.exact", "tour.examples", "tour.curves", "encoding.heatmap", "table.hands", "encoding.circle",
        "encoding.wavelengths", "table.similarity", "encoding.rotation", "loudness.scale",
        "logits.layers", "heads.positional", "survival", "cause", "tour.roles", "tour.attention",
    ]  # fmt: skip
    assert all(finding.verdict and finding.light != "skip" for finding in findings)
    assert Findings.from_json(findings.to_json()) == findings
    assert "Tom bit a dog" in page(findings)
    assert (tmp_path / "tour" / "model.safetensors").is_file()
    assert (tmp_path / "tour" / "variants" / "no-scale" / "recipe.toml").is_file()
    with pytest.raises(UsageError, match="already holds a run"):
        demonstration.run_tour(tmp_path / "tour")


@pytest.mark.slow
def test_the_whole_tour_shows_what_it_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tour", "--out", str(tmp_path / "tour"), "--quiet"]) == 0
    findings = Findings.load(tmp_path / "tour" / "findings.json")
    exact = {row[0]: row[1] for row in findings["tour.exact"].table.rows}
    assert exact["as in the paper"] > 99
    assert exact["no positions"] < 90
    assert exact["no √d scale"] < 10
    with_positions, without = findings["tour.roles"].table.rows
    assert with_positions[1] > 95
    assert without[1] <= findings["tour.roles"].references[0].value
    assert without[4] == 0
    assert "The page:" in capsys.readouterr().out
    assert main(["translate", str(tmp_path / "tour"), "zweihundertdrei"]) == 0
    assert capsys.readouterr().out == "two hundred and three\n"


def test_the_rotation_is_exact_for_sinusoids_and_for_nothing_else() -> None:
    rows = Sinusoidal(32).encode(torch.arange(200)[None])[0]
    assert encoding_findings.rotation(rows).value < 1e-6
    assert encoding_findings.rotation(torch.randn(200, 32)).value > 1
    assert encoding_findings.rotation(rows[:, torch.randperm(32)]).value > 0.1


def test_the_classic_picture_is_16_by_32() -> None:
    figure = encoding_findings.classic(Sinusoidal(64).encode(torch.arange(100)[None])[0]).figure
    z = figure.panels[0].marks[0].z
    assert (len(z), len(z[0])) == (16, 32)
    assert z[0][:4] == (0.0, 1.0, 0.0, 1.0)
    assert z[3][0] == pytest.approx(0.14112, abs=1e-5)  # sin 3


def test_wavelengths_run_from_two_pi_to_the_base() -> None:
    rows = encoding_findings.wavelengths(64).table.rows
    assert rows[0][1] == pytest.approx(6.28319, abs=1e-4)
    assert rows[-1][1] == pytest.approx(6.28319 * 10_000 ** (62 / 64), rel=1e-5)


def test_told_apart_counts_pairs_with_two_translations() -> None:
    pairs = [Pair("a b c", "x"), Pair("c b a", "y"), Pair("d e f", "x"), Pair("f e d", "y"), Pair("only one", "z")]
    texts = ["x", "y", "same", "same", "z"]
    done = tuple(Translation(pair.source, text, 0.0) for pair, text in zip(pairs, texts, strict=True))
    result = SimpleNamespace(pairs=pairs, evaluation=SimpleNamespace(translations=done))
    assert result_findings.told_apart(result) == 0.5
