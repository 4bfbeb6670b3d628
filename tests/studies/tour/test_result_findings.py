"""What the tour says of its translators, on translations that are written here."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import clockhands
from clockhands.cli import main
from clockhands.data import Pair
from clockhands.data.corpora.roles import Phrase, RoleSentence
from clockhands.errors import UsageError
from clockhands.findings import Finding, Findings
from clockhands.generation import Score, Translation, compute_exact_match
from clockhands.report import make_page
from clockhands.studies.tour import result_findings
from clockhands.studies.tour.result_findings import TWINS, describe_twins, find_opening, measure_told_apart
from clockhands.studies.tour.training import MAIN, NO_POSITION, NO_SCALE, ROLES, ROLES_BLIND, Translator
from tests.studies.tour.short import make_tour

NOTHING: Any = None


def test_told_apart_counts_pairs_with_two_translations() -> None:
    pairs = [Pair("a b c", "x"), Pair("c b a", "y"), Pair("d e f", "x"), Pair("f e d", "y"), Pair("only one", "z")]
    texts = ["x", "y", "same", "same", "z"]
    done = tuple(Translation(pair.source, text, 0.0) for pair, text in zip(pairs, texts, strict=True))
    assert measure_told_apart(pairs, done)[0] == 50.0


def test_a_perfect_translator_is_not_certain_and_twins_count_once() -> None:
    """Of 20 that are all right at least 0.025^(1/20) are; of ten pairs of twins, 0.025^(1/10)."""
    evaluation: Any = SimpleNamespace(scores=(compute_exact_match(["x"] * 20, ["x"] * 20),))
    run: Any = None
    alone = Translator("main", run, evaluation, [Pair(str(n), "x") for n in range(20)]).exact
    twins = Translator("main", run, evaluation, [Pair(str(n), "x", n // 2) for n in range(20)]).exact
    assert (alone.low, alone.high) == pytest.approx((83.16, 100), abs=0.01)
    assert (twins.low, twins.high) == pytest.approx((69.15, 100), abs=0.01)


def test_the_head_that_looks_sharpest_is_named_with_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head 3 of layer 1 looks at one token each, and goes back once; all others look everywhere."""
    weights = torch.full((2, 4, 5, 5), 0.2)
    weights[0, 2] = 0.9 * torch.eye(5)[[0, 1, 3, 2, 4]] + 0.02
    words = tuple("abcde")
    monkeypatch.setattr(result_findings, "compute_cross_attention", lambda opened, source: (weights, words, words))
    monkeypatch.setattr(result_findings, "draw_cross_attention", lambda opened, source: None)
    found = result_findings.find_attention(NOTHING, Pair("a b c d e", "x"))
    assert "head 3 of layer 1 puts 92 % of its weight on one source token" in found.verdict
    assert "evenly spread it would be 20 %" in found.verdict
    assert "goes back 1 time on its way through 5 target tokens" in found.verdict
    assert [row[:2] for row in found.table.rows] == list(zip(words, "abdce", strict=True))


def test_examples_are_what_the_reader_without_positions_got_wrong_first() -> None:
    """Of three numbers it gets the second wrong; the verdict sets both translations of the first two side by side."""
    pairs = [Pair("one", "1"), Pair("two", "2"), Pair("three", "3")]
    written = {MAIN: "123", NO_POSITION: "193", NO_SCALE: "883"}
    translators: Any = {
        variant: SimpleNamespace(
            pairs=pairs, evaluation=SimpleNamespace(translations=[SimpleNamespace(text=digit) for digit in digits])
        )
        for variant, digits in written.items()
    }
    found = result_findings.find_examples(translators)
    assert found.verdict.splitlines() == ["two → 2. Without positions: 9.", "one → 1. Without positions: 1."]
    assert (found.value, found.unit) == (3, "of 3 right")


@pytest.mark.parametrize(("ceiling", "light"), [(25.0, "good"), (100.0, "bad")])
def test_the_light_is_good_only_above_what_order_blindness_allows(
    ceiling: float, light: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All right with positions, half right without; the ceiling is what differs."""
    monkeypatch.setattr(result_findings, "find_plan_ceiling", lambda plan: SimpleNamespace(share=ceiling / 100))
    monkeypatch.setattr(result_findings, "answer_question", lambda study, comparison: "Yes.")
    pairs = [Pair("a b c", "x", 0), Pair("c b a", "y", 0)]
    texts = {result_findings.ROLES: "xy", result_findings.ROLES_BLIND: "xx"}
    translators: Any = {
        name: Translator(
            name,
            NOTHING,
            SimpleNamespace(
                scores=(compute_exact_match(list(written), ["x", "y"]),),
                translations=[Translation(p.source, text, 0.0) for p, text in zip(pairs, written, strict=True)],
            ),  # type: ignore[arg-type]
            pairs,
        )
        for name, written in texts.items()
    }
    study: Any = SimpleNamespace(question="Is order needed?")
    found = result_findings.find_roles(study, SimpleNamespace(plan=None), translators)  # type: ignore[arg-type]
    assert (found.value, found.light, found.references[0].value) == (100, light, ceiling)
    assert "100 % get two translations with positions and 0 % without" in found.verdict


@pytest.mark.parametrize(("quiet", "later"), [((0.0, 12.0), True), ((95.0, 99.0), False)])
def test_without_the_factor_it_is_later_or_undecided_and_never_fails(quiet: tuple[float, float], later: bool) -> None:
    main = Score("exact", 99.0, 98.0, 100.0, "")
    said = result_findings.describe_without_factor(main, Score("exact", sum(quiet) / 2, *quiet, ""))
    assert ("later, not never" in said) == later and ("undecided with one seed" in said) == (not later)


RIGHT = ["Tomo mordis hundon", "hundo mordis Tomon"]


def make_translators(monkeypatch: pytest.MonkeyPatch, seeing: list[str], blind: list[str]) -> dict[str, Translator]:
    """Two translators that write these texts, the first telling both test pairs apart and the second neither."""
    pairs = [Pair("a b c", "x"), Pair("c b a", "y"), Pair("d e f", "x"), Pair("f e d", "y")]
    written = {ROLES: ("xyxy", seeing), ROLES_BLIND: ("xxyy", blind)}
    monkeypatch.setattr(
        result_findings, "translate", lambda run, texts: [SimpleNamespace(text=text) for text in written[run][1]]
    )
    translators = {}
    for name, (texts, _) in written.items():
        done = tuple(Translation(pair.source, text, 0.0) for pair, text in zip(pairs, texts, strict=True))
        run: Any = name
        evaluation: Any = SimpleNamespace(translations=done)
        translators[name] = Translator(name, run, evaluation, pairs)
    return translators


def test_the_twins_are_what_the_corpus_says() -> None:
    tom, dog = Phrase("Tom"), Phrase("dog", "a")
    pairs = [RoleSentence(tom, "bit", dog).to_pair(), RoleSentence(dog, "bit", tom).to_pair()]
    assert {pair.source: pair.target for pair in pairs} == TWINS


def test_a_reader_without_positions_gets_one_of_the_two_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_opening(make_translators(monkeypatch, RIGHT, [RIGHT[1]] * 2))
    assert (found.value, found.light) == (100.0, "good")
    assert found.references[0].value == 0.0 and found.references[0].name == "without positions"
    assert found.interval is not None and found.interval[0] == pytest.approx(100 * 0.025**0.5)
    assert [row[:3] for row in found.table.rows] == [
        ("Tom bit a dog", "Tomo mordis hundon", "hundo mordis Tomon"),
        ("a dog bit Tom", "hundo mordis Tomon", "hundo mordis Tomon"),
    ]
    header = make_page(Findings("t", (found,))).split("</header>")[0]
    assert "Without positions both become “hundo mordis Tomon”: one of them is wrong." in header


@pytest.mark.parametrize(
    ("seeing", "blind", "said", "light"),
    [
        (RIGHT, RIGHT, "Without positions they become “Tomo mordis hundon” and “hundo mordis Tomon”: both are right",
         "good"),
        (["x", RIGHT[1]], ["y", "y"], "“a dog bit Tom” “hundo mordis Tomon”: one of them is wrong", "warn"),
        (["x", "x"], ["y", "y"], "Without positions both become “y”: both are wrong.", "warn"),
        (RIGHT[::-1], ["y", "y"], "both are wrong. Without", "warn"),
    ],
)  # fmt: skip
def test_what_is_said_is_what_was_written(
    seeing: list[str], blind: list[str], said: str, light: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said in describe_twins(seeing, blind)
    assert find_opening(make_translators(monkeypatch, seeing, blind)).light == light


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
