"""Answers hold the figures of the committed results, computed here once more, without the package."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import Any

import pytest

from clockhands.comparison import Comparison, judge
from clockhands.comparison.task_findings import find_plan_ceiling
from clockhands.comparison.trial import LongerText, Trial
from clockhands.studies import STUDIES
from clockhands.studies.answer import NOT_MEASURED, answer_question, conclude_study, fill_slots, format_interval
from clockhands.studies.study import Conclusion, Ordering
from tests.answers import kept
from tests.comparison.planted import change_trials, results, shares

MEASURED = [name for name in kept.list_kept() if name in STUDIES]
NUMBER = r"(−?[\d.]+(?: to [\d.]+)?(?: \[[^\]]*\])?)"
"""With its interval, or the lowest and the highest of its seeds."""
SEEDS = r"(?: in the \d+ of \d+ seeds that learned| over its seeds, of which \d+ of \d+ learned)?"
SLOT = re.compile(r"\[\[(\w+)(?::(.+?))?\]\]")


@lru_cache
def raw(name: str) -> list[dict[str, Any]]:
    trials = json.loads(kept.read_text(name))["trials"]
    return [trial for trial in trials if trial["status"] == "finished"]


@lru_cache
def answer(name: str) -> str:
    return answer_question(STUDIES[name], kept.read_kept(name))


@lru_cache
def seed_scores(name: str) -> dict[str, list[float]]:
    """The mean over test items of every seed; exact match in percent."""
    scores: dict[str, list[float]] = {}
    for trial in raw(name):
        items = trial["items"]
        values = [100.0 * int(digit) for digit in items] if isinstance(items, str) else items
        scores.setdefault(trial["variant"], []).append(fmean(values))
    return scores


def mean_score(name: str, variant: str) -> float:
    """Over the seeds that reached a fifth of the best, or over all where none did; of a loss those below its bar."""
    scores = seed_scores(name)[variant]
    if STUDIES[name].planned.metric == "loss":
        bar = STUDIES[name].planned.learned
        return fmean([score for score in scores if bar is None or score <= bar] or scores)
    best = max(score for row in seed_scores(name).values() for score in row)
    return fmean([score for score in scores if score >= best / 5] or scores)


def truth(name: str, kind: str, rest: str) -> float:
    if kind == "score":
        return mean_score(name, rest)
    if kind == "verdict":
        baseline = STUDIES[name].planned.baseline
        return mean_score(name, rest) - mean_score(name, baseline)
    variant, _, key = rest.rpartition(":")
    trials = [trial for trial in raw(name) if trial["variant"] == variant]
    if kind == "longer":
        return fmean(trial["longer"][key]["loss"] for trial in trials)
    return fmean(trial["inside"][kind][key] for trial in trials)


@pytest.mark.parametrize("name", MEASURED)
def test_every_figure_of_an_answer_is_that_of_the_results(name: str) -> None:
    literal = SLOT.split(STUDIES[name].answer)[::3]
    slots = SLOT.findall(STUDIES[name].answer)
    forms = [NUMBER + SEEDS if kind in ("score", "before", "after", "longer") else "(.+?)" for kind, _ in slots]
    literals = [re.sub(r"^\\ %", " %" + SEEDS.replace("\\", r"\\"), re.escape(text)) for text in literal]
    pattern = "".join(text + form for text, form in zip(literals, [*forms, ""], strict=True))
    said = re.match(pattern, answer(name))
    assert said is not None and slots
    for (kind, rest), text in zip(slots, said.groups(), strict=True):
        if kind in ("ceiling", "literature") or re.match(r"\w+: \d+ of \d+ seeds learned|too few seeds", text):
            continue
        if bounds := re.search(r"from ([−+][\d.]+) to ([−+][\d.]+) (points|nats)", text):
            low, high = (float(bound.replace("−", "-")) for bound in bounds.groups()[:2])
            assert low < truth(name, kind, rest) < high, f"{rest}: {text}"
            continue
        if few := re.fullmatch(r"([\d.]+) to ([\d.]+)", text):
            every = seed_scores(name)[rest]
            places = len(few[1].partition(".")[2])
            shown = pytest.approx([min(every), max(every)], abs=0.51 * 10**-places)
            assert [float(end) for end in few.groups()] == shown
            continue
        if ends := re.search(r"its seeds score ([\d.]+) to ([\d.]+), and the baseline's ([\d.]+) to ([\d.]+)", text):
            ranges = [seed_scores(name)[variant] for variant in (rest, STUDIES[name].planned.baseline)]
            shown = [min(ranges[0]), max(ranges[0]), min(ranges[1]), max(ranges[1])]
            assert [float(end) for end in ends.groups()] == pytest.approx(shown, abs=0.051)
            continue
        figure = re.search(r"−?\d+(\.(\d+))?", text)
        assert figure is not None, text
        expected, places = truth(name, kind, rest), len(figure[2] or "")
        expected = abs(expected) if kind == "verdict" else expected
        assert float(figure[0].replace("−", "-")) == pytest.approx(expected, abs=0.51 * 10**-places), f"{kind}:{rest}"


def test_every_result_has_its_study() -> None:
    assert {name.partition(".")[0] for name in kept.list_kept()} == set(MEASURED)


def test_the_ceiling_is_that_of_the_plan() -> None:
    share = find_plan_ceiling(STUDIES["order-at-all"].planned).share
    assert f"{100 * share:.1f} %" in answer("order-at-all") and 0.22 < share < 0.28


def test_the_literature_is_counted() -> None:
    told = re.search(r"Of (\d+) orderings that the literature reports, (.*)\.$", answer("how-far"))
    assert told is not None
    parts = re.findall(r"(\d+) (are reproduced here|contradicted|shown to be equal|undecided)", told[2])
    assert int(told[1]) == len(STUDIES["how-far"].orderings) == sum(int(count) for count, _ in parts)
    assert len(parts) == 4, "one is equal within the margin"


def test_a_reading_is_said_where_its_verdicts_came_out() -> None:
    study = replace(
        STUDIES["order-at-all"], readings=(Conclusion({"better": "better", "worse": "worse"}, "So it is."),)
    )
    assert answer_question(replace(study, answer="Here."), results()) == "Here. So it is."
    other = replace(study, readings=(Conclusion({"better": "better", "same": "equivalent"}, "So it is."),))
    assert answer_question(replace(other, answer="Here."), results()) == "Here."
    orders = (Ordering(more="better", less="worse"), Ordering(more="worse", less="better"))
    said = [replace(study, answer="Here.", readings=(Conclusion({}, "So it is.", (order,)),)) for order in orders]
    assert [answer_question(study, results()) for study in said] == ["Here. So it is.", "Here."]


@pytest.mark.parametrize(
    ("name", "size", "absent", "said"),
    [
        ("scale", "long", "1, shared, encoding/√d", "1, shared: 50.0"),
        ("sum-or-concatenate", "gpu", "concatenate 48 + 16", "concatenate 192 + 64: 50.0"),
    ],
)
def test_a_size_without_a_variant_tells_what_it_measured(name: str, size: str, absent: str, said: str) -> None:
    study = STUDIES[name]
    plan = study.make_plan(size=size)
    trials = [
        Trial(variant.name, seed, "finished", items="10" * 50) for variant in plan.variants for seed in plan.seeds
    ]
    text = answer_question(study, Comparison(plan, {}, tuple(trials)))
    assert absent in text.partition("not trained at this size")[0] and "[[" not in text
    assert (
        said in text
        and f"{plan.baseline}: 50.0" in text
        and text.count("undecided") + text.count("equivalent") == len(plan.variants) - 1
    )


def test_the_answer_is_the_first_finding() -> None:
    study = STUDIES["order-at-all"]
    comparison = kept.read_kept("order-at-all")
    findings = conclude_study(study, comparison, "clockhands study order-at-all")
    assert (findings.items[0].question, findings.items[0].verdict) == (study.question, answer("order-at-all"))
    assert findings.items[1].name == "compare.verdict"


def test_slots_are_filled_with_what_was_measured() -> None:
    comparison = results()
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    text = fill_slots("[[score:base]] and [[verdict:better]], [[after:base:loud]].", comparison, verdicts)
    assert text.endswith(", 2.00.") and "better by" in text and "[" in text
    assert fill_slots("[[before:base:quiet]]", comparison, verdicts) == "(not measured)"
    with pytest.raises(KeyError, match="no slot 'mean'"):
        fill_slots("[[mean:base]]", comparison, verdicts)


def test_a_text_that_every_model_refused_is_called_so() -> None:
    comparison = results()
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    texts = {"twice": LongerText(loss=2.0), "eight times": LongerText(refused="the table ends")}
    told = change_trials(comparison, lambda trial: {"longer": texts} if trial.variant == "base" else {})
    assert fill_slots("[[longer:base:twice]], [[longer:base:eight times]]", told, verdicts) == "2.00, refused"
    assert fill_slots("[[longer:better:eight times]]", told, verdicts) == "(not measured)"


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([0.9, 0.9, 0.9, 0.02, 0.01], r"[89]\d\.\d % in the 3 of 5 seeds that learned"),
        ([0.9, 0.9, 0.02, 0.02, 0.01], r"\d\.\d to [89]\d\.\d % over its seeds, of which 2 of 5 learned"),
        ([0.9, 0.9, 0.02, 0.02, None], r"\d\.\d to [89]\d\.\d % over the 4 seeds that ended, of which 2 of 5 learned"),
        ([0.9] * 5, r"[89]\d\.\d \[.+\] %"),
    ],
)
def test_of_fewer_than_three_seeds_that_learned_no_mean_is_told(rates: list[float | None], said: str) -> None:
    made = shares({"base": [0.9] * 5, "torn": rates})
    verdicts = {verdict.variant: verdict for verdict in judge(made)}
    assert re.fullmatch(said, fill_slots("[[score:torn]] %", made, verdicts))


@pytest.mark.parametrize(
    ("values", "digits", "told"),
    [
        ([], 1, NOT_MEASURED),
        ([2.0, 2.0, 2.0], 1, "2.0"),
        ([2.0, 2.04], 1, "2.0"),
        ([2.0, 2.04], 2, "2.02 [1.77, 2.27]"),
    ],
)
def test_a_number_that_is_the_same_for_every_seed_has_no_interval(values: list[float], digits: int, told: str) -> None:
    """The last: mean 2.02, and 12.706 times the standard error of 0.02 to either side (Student, one degree)."""
    assert format_interval(values, digits) == told


def test_an_end_near_zero_shows_its_sign() -> None:
    """Of five values: mean 0.002, standard error 0.00057, and 2.78 of these on either side."""
    values = [0.0002, 0.0038, 0.002, 0.002, 0.002]
    assert format_interval(values, 3, sign="+") == "+0.002 [+0.0004, +0.004]"
    assert format_interval([-value for value in values], 3, sign="+") == "−0.002 [−0.004, −0.0004]"
