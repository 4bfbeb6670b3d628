"""The choice: the guard first, then what a method does worse, loss or rank; and the whole of it on a tiny model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.extension.archive import Archive
from clockhands.extension.choice_findings import describe_choice, make_choice_finding, make_trial_finding
from clockhands.extension.choose import (
    MOST_ASKED,
    Choice,
    Judged,
    _pick,
    choose_method,
    list_able,
    measure_lags,
    search_factors,
)
from clockhands.extension.methods import Method
from clockhands.extension.reading import Drift
from clockhands.extension.retrieval import Retrieval
from clockhands.extension.write import write_card
from clockhands.findings import Findings
from clockhands.models import open_language_model
from tests.runs.tiny import LENGTH, save_model, save_own_model

SHORT = np.random.default_rng(0).normal(2, 0.3, 60)
"""The losses of sixty short texts, nats per token."""


def draw_noise(spread: float) -> np.ndarray:
    """Draw noise of mean zero, the same at every call: what a test plants is then what its sample shows."""
    noise = np.random.default_rng(1).normal(0, spread, 60)
    return noise - noise.mean()


def make_judged(name: str, long_loss: float, cost: float, rank: float = 0.8) -> Judged:
    drift = Drift((32, 64), 8, np.stack([np.full(20, 2.0), np.full(20, long_loss)], 1))
    retrieval = Retrieval((32, 64), {"recall": np.full((20, 2), rank)}, {}, {}, {}, "")
    paired = SHORT + 2 * cost + draw_noise(0.005)
    (difference,) = compare_with_baseline([paired[:, None]], [SHORT[:, None]])
    return Judged(Method(name, ""), drift, retrieval, None if name == "none" else difference, float(SHORT.mean()))


@pytest.mark.parametrize(
    ("rivals", "chosen"),
    [
        ([("best", 2.0, 0.05), ("cheap", 2.3, 0.0)], "cheap"),
        ([("best", 2.0, 0.004), ("cheap", 2.3, 0.0)], "best"),
        ([("best", 2.000, 0.0, 0.7), ("near", 2.015, 0.0, 0.9)], "near"),
        ([("best", 2.000, 0.0, 0.7), ("far", 2.3, 0.0, 0.9)], "best"),
        ([("reads", 2.000, 0.0, 0.70), ("finds", 2.1, 0.0, 0.80), ("both", 2.018, 0.0, 0.77)], "both"),
        ([("dear", 2.0, 0.02), ("worse", 3.5, 0.0)], "none"),
    ],
)
def test_of_what_passes_the_guard_the_least_behind_in_what_it_does_worse_is_chosen(
    rivals: list[tuple[str, float, float]], chosen: str
) -> None:
    judged = [make_judged("none", 3.0, 0.0), *(make_judged(*rival) for rival in rivals)]
    assert _pick(judged).method.name == chosen


def test_a_cache_counts_where_it_is_worse_and_among_equals_the_least_dependent_is_chosen() -> None:
    """What reads best in one pass loses a third of that by its cache; then it is no better than what never depends."""
    plain, steady = make_judged("none", 3.0, 0.0), make_judged("steady", 2.0, 0.0)
    grows = replace(make_judged("grows", 1.9, 0.0), dependence=2)
    assert _pick([plain, steady, grows]) is grows
    by_cache = replace(grows, cached=make_judged("grows", 2.5, 0.0).drift)
    assert _pick([plain, steady, by_cache]) is steady
    forgets = replace(grows, cached=grows.drift, cached_retrieval=make_judged("", 1.9, 0.0, rank=0.5).retrieval)
    assert _pick([plain, steady, forgets]) is steady
    for loss, chosen in ((1.9985, "steady"), (1.99, "grows")):
        near = replace(make_judged("grows", loss, 0.0), dependence=2, cached=make_judged("", loss, 0.0).drift)
        assert _pick([plain, near, steady]).method.name == chosen
    made = make_choice_finding(Choice(32, 64, {"none": (3.0, 8)}, (plain, steady, by_cache), by_cache, ()))
    assert "is 1.900 in one pass, and 2.500 where it reads 32 tokens and goes on by its cache" in made.verdict
    column = list(made.table.columns).index("loss at 64, by cache")
    assert [row[column] for row in made.table.rows] == [None, None, 2.5]


def test_lags_by_hand() -> None:
    """1 % of the loss counts as much as two points of rank; the larger lag counts."""
    assert measure_lags({"a": 2.0, "b": 2.04}, {"a": 0.77, "b": 0.8}) == pytest.approx({"a": 1.5, "b": 2.0})
    assert measure_lags({"a": 2.0, "b": 2.04}, {}) == pytest.approx({"a": 0.0, "b": 2.0})
    assert measure_lags({"a": np.inf, "b": np.inf}, {"a": 0.7, "b": 0.8}) == pytest.approx({"a": 5.0, "b": 0.0})


def test_a_cost_that_is_not_shown_to_be_small_does_not_pass() -> None:
    noisy = SHORT + draw_noise(0.5)
    (difference,) = compare_with_baseline([noisy[:, None]], [SHORT[:, None]])
    assert not replace(make_judged("noisy", 2.0, 0.0), cost=difference).passes


def test_a_choice_is_made_written_down_and_not_measured_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_language_model(save_model(tmp_path / "model", "llama"))
    stream = np.random.default_rng(0).integers(3, 99, 4000)
    options = {"texts": 8, "items": 10, "evaluations": 6, "learned": ("recall",)}
    archive = tmp_path / "measured.json"
    choice = choose_method(model, stream[:2000], stream[2000:], LENGTH * 2, 128, archive=Archive(archive), **options)
    names = [entry.method.name for entry in choice.judged]
    assert names[0] == "none" and names[-1] == "searched" and len(choice.tried) == 18
    assert all(entry.passes for entry in choice.judged if entry.cost is None or entry.cost.value == 0)
    able = list_able(choice.judged)
    asked = [entry.method.name for entry in able if entry.method.name != "none"][:MOST_ASKED]
    measured = [entry.method.name for entry in choice.judged if entry.retrieval is not None]
    assert measured == [name for name in names if name in ("none", *asked)], "recall, where it can decide"
    findings = Findings("t", (make_choice_finding(choice), make_trial_finding(choice)))
    assert findings.items[0].figure is not None
    bars = findings.items[0].figure.panels[-1].marks[0]
    dear = [100 * entry.cost.high / entry.short_loss for entry in choice.judged if entry.cost is not None]
    assert bars.high == pytest.approx(dear) and bars.x == tuple(names[1:])
    card = write_card(findings, choice, "model", tmp_path).read_text()
    assert "| method |" in card and choice.chosen.method.name in card
    for name in ("choose.measure_losses", "choose.measure_drift", "choose.measure_retrieval"):
        monkeypatch.setattr(f"clockhands.extension.{name}", _measure_again)
    again = choose_method(model, stream[:2000], stream[2000:], LENGTH * 2, 128, archive=Archive(archive), **options)
    assert again.chosen.method == choice.chosen.method


def _measure_again(*arguments: object, **named: object) -> None:
    raise AssertionError("measured again")


def test_why_no_other_attention_was_tried_is_told(tmp_path: Path) -> None:
    model = open_language_model(
        save_own_model(tmp_path, {"scheme": "rope", "layers": [{"scheme": "window", "left": 7}, "none"]})
    )
    stream = np.random.default_rng(0).integers(3, 99, 2000)
    choice = choose_method(
        model, stream[:1000], stream[1000:], LENGTH, 2 * LENGTH, texts=2, items=5, evaluations=0, learned=()
    )
    tried = make_trial_finding(choice)
    told = (
        "Methods that need another attention were not tried: its layers have different positions, and a method has one"
    )
    assert told in tried.method
    tried = make_trial_finding(replace(choice, left_out=""))
    assert "not tried" not in tried.method


def test_why_the_model_as_it_is_was_chosen_is_told_by_what_passes_the_guard() -> None:
    plain, dear, worse = make_judged("none", 3.0, 0.0), make_judged("dear", 2.0, 0.05), make_judged("worse", 3.5, 0.0)

    def describe(*judged: Judged) -> str:
        return describe_choice(Choice(32, 64, {}, judged, plain, ("recall",)))

    assert describe(plain, dear) == "Chosen: the model as it is; no method is shown to pass the guard."
    told = (
        "Chosen: the model as it is. Of what passes the guard and can be written, it is the least behind the best in "
        "loss and rank"
    )
    assert describe(plain, worse) == f"{told}."
    assert describe(plain, dear, worse) == f"{told}; 1 of 2 methods is not shown to pass it."
    kept, better = (replace(make_judged(name, 2.0, 0.0), writable=False) for name in ("log-n", "rerope"))
    assert describe(plain, dear, kept).endswith("; no method that can be written is shown to pass the guard.")
    assert describe(plain, worse, kept) == f"{told}."
    unread = [make_judged(name, np.nan, 0.0) for name in ("none", "linear")]
    told = describe_choice(Choice(32, 64, {}, tuple(unread), unread[0], ("recall",)))
    assert "it reads no text beyond the trained length, and no method that passes the guard does" in told
    made = make_choice_finding(Choice(32, 64, {"none": (3.0, 8)}, (plain, worse, kept, better), plain, ("recall",)))
    assert "log-n (2.000) and rerope (2.000) read with a smaller mean loss than that (3.000), but" in made.verdict
    assert made.verdict.endswith("plain transformers cannot open a model with them.")
    tried = {"none": (3.0, 8), "linear": (3.1, 8)}
    first = make_trial_finding(Choice(32, 64, tried, (plain,), plain, ())).verdict
    assert "the last round (8 texts) the model as it is had the smallest loss" in first, "not: none had"
    column = list(made.table.columns).index("can be written")
    assert [row[column] for row in made.table.rows] == ["yes", "yes", "no", "no"]


def test_a_run_can_be_written_with_any_method() -> None:
    """Plain transformers open no run at all, so the table says what can be written, not what they open."""
    plain, laid = make_judged("none", 3.0, 0.0), make_judged("log-n", 2.0, 0.0)
    laid = replace(laid, method=Method("log-n", "", scheme={"scheme": "none"}))
    choice = Choice(32, 64, {"none": (3.0, 8)}, (plain, laid), laid, ())
    made = make_choice_finding(choice)
    assert [row[-2:] for row in made.table.rows] == [("yes", ""), ("yes", "chosen")]


PAIRS = 12
HIDDEN = np.linspace(1.0, 6.0, PAIRS)


@pytest.mark.parametrize("evaluations", [3, 64, 200])
def test_factors_are_found_within_the_evaluations(evaluations: int) -> None:
    calls = []

    def measure(factors_F: np.ndarray, text: int = 0) -> float:
        assert (factors_F >= 1).all() and (factors_F <= 8).all() and (np.diff(factors_F) >= 0).all()
        calls.append(factors_F)
        return float((np.log(factors_F / HIDDEN) ** 2).mean())

    starts = [np.full(PAIRS, 4.0), np.ones(PAIRS)]
    best_F, loss = search_factors(measure, starts, 4.0, evaluations, seed=1)
    assert len(calls) == evaluations
    first = min(float((np.log(start / HIDDEN) ** 2).mean()) for start in starts)
    assert loss == measure(best_F) <= first
    assert evaluations < 64 or loss < first / 3


def test_what_is_worse_on_the_first_text_than_the_last_parent_reads_no_other() -> None:
    read: list[list[int]] = []
    noise = np.random.default_rng(3).normal(0, 0.3, 4)

    def measure(factors_F: np.ndarray, text: int) -> float:
        if text == 0:
            read.append([])
        read[-1].append(text)
        return float((np.log(factors_F / HIDDEN) ** 2).mean() + noise[text])

    best_F, loss = search_factors(measure, [np.full(PAIRS, 4.0)], 4.0, 64, texts=4, seed=1)
    assert len(read) == 64 and all(texts in ([0], [0, 1, 2, 3]) for texts in read)
    assert read.count([0]) > 16, "texts are paired, so the first tells which is better"
    assert loss == pytest.approx((np.log(best_F / HIDDEN) ** 2).mean() + noise.mean()), "the best has read all"
