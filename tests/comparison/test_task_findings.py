"""What can be done of a task without order, and who knows its text too little for longer text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.comparison.plan import make_plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.task_findings import (
    describe_ceiling,
    describe_floor,
    find_plan_ceiling,
    find_plan_floor,
    list_above,
)
from clockhands.data import Ceiling, open_corpus
from clockhands.data.bounds import Floor, find_floor
from clockhands.data.splits import redraw_training
from clockhands.runs.recipe import make_recipe
from clockhands.training import prepare
from tests.comparison.planted import NAMES, change_trials, results

DATA = {"corpus": "numbers", "largest": 9999, "train": 2000, "validation": 20, "test": 20, "longer": 0}


def test_the_tokenizer_of_the_baseline_decides() -> None:
    recipe = {"data": DATA, "model": {"preset": "tiny"}, "training": {"max_steps": 1}}
    vary = {"tokenizer.kind": ["bpe", "character"]}
    pairs = find_plan_ceiling(make_plan(recipe, vary=vary, baseline="bpe"))
    letters = find_plan_ceiling(make_plan(recipe, vary=vary, baseline="character"))
    assert pairs.low > 0.8 > 0.5 > letters.high


def test_an_exact_ceiling_has_no_interval() -> None:
    exact = describe_ceiling(Ceiling(0.216, 0.216, 0.216, "all"))
    assert (exact.value, exact.interval, exact.unit) == (pytest.approx(21.6), None, "%")
    drawn = describe_ceiling(Ceiling(0.5, 0.4, 0.6, "10 drawn"))
    assert drawn.interval == (40.0, 60.0) and drawn.verdict == Ceiling(0.5, 0.4, 0.6, "10 drawn").sentence


def losing(losses: dict[str, float]) -> Comparison:
    """A comparison whose variants have these losses."""
    return change_trials(results(), lambda t: {"scores": {**t.scores, "loss": losses.get(t.variant, 1.0)}})


@pytest.mark.parametrize(
    ("loss", "known", "above", "light", "told"),
    [
        (2.5, NAMES, ["better"], "warn", "No claim about length is made of better (2.50)."),
        (1.99, NAMES, [], "good", "All variants are below it."),
        (2.01, NAMES, ["better"], "warn", "of better (2.01)."),  # 0.4 below, no less
        (2.5, (), [], "info", "No loss is known of base, better, same and worse."),
        (2.5, ("base", "same"), [], "good", "All others are below it. No loss is known of better and worse."),
        (2.5, ("base", "better", "same"), ["better"], "warn", "made of better (2.50). No loss is known of worse."),
    ],
)
def test_who_is_above_the_floor_is_named_and_of_whom_no_loss_is_known(
    loss: float, known: tuple[str, ...], above: list[str], light: str, told: str
) -> None:
    floor, comparison = Floor(2.4, 100), losing({"better": loss})
    trials = tuple(trial for trial in comparison.trials if trial.variant in known)
    comparison = replace(comparison, trials=trials)
    assert list_above(floor, comparison) == {name: pytest.approx(loss) for name in above}
    finding = describe_floor(floor, comparison)
    assert finding.light == light and finding.verdict.endswith(told)
    assert ("below it" in finding.verdict) == (light == "good")


def test_made_text_has_no_floor_and_real_text_has(tmp_path: Path) -> None:
    training, vary = {"max_steps": 1}, {"model.norm": ["pre", "post"]}
    made = {"data": {"corpus": "numbers"}, "model": {"preset": "tiny"}, "training": training}
    assert find_plan_floor(make_plan(made, vary=vary)) is None
    (tmp_path / "text.txt").write_text("to be or not to be that is the question\n" * 300)
    data = {"corpus": "text", "train": str(tmp_path / "text.txt"), "unit": "file", "holdout": 0.2}
    real = {"data": data, "tokenizer": {"kind": "word"}, "training": training, "batches": {"window": 17}}
    floor = find_plan_floor(make_plan(real, vary=vary))
    assert floor is not None and floor.trigram < 0.3 and floor.tokens % 16 == 0


def test_the_floor_is_of_the_texts_that_the_seeds_draw() -> None:
    data = {"corpus": "stdlib", "limit": 200_000, "file_limit": 2_000, "validation": 0.2, "test": 0.2}
    recipe = make_recipe(
        {"data": data, "tokenizer": {"kind": "character"}, "batches": {"window": 17}, "training": {"max_steps": 1}}, {}
    )
    vary = {"model.norm": ["pre", "post"]}
    corpus = open_corpus(data["corpus"], **{key: value for key, value in data.items() if key != "corpus"})
    tokenizers = prepare(recipe).tokenizers

    def count(number: int) -> float:
        text = {**corpus.splits, "train": redraw_training(corpus, number)}
        return find_floor(replace(corpus, splits=text), tokenizers, 17).trigram

    first = find_plan_floor(make_plan(recipe, vary=vary, seeds=3))
    drawn = find_plan_floor(make_plan(recipe, vary=vary, seeds=3, redraw_text=True))
    assert first is not None and drawn is not None
    assert first.trigram == find_floor(corpus, tokenizers, 17).trigram != drawn.trigram
    assert (first.texts, drawn.texts) == (1, 3) and first.sentence.startswith("A trigram model of the same text has ")
    assert drawn.sentence.startswith("Trigram models of the 3 texts that the seeds train on have, in the mean, ")
    assert drawn.trigram == pytest.approx(sum(map(count, (1, 2, 3))) / 3, rel=1e-12)
