"""A corpus says which splits it has and what they hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clockhands.comparison.plan import choose_metric
from clockhands.data import CORPORA, Corpus, Pair, corpus, corpus_options, open_corpus
from clockhands.data.corpora.numbers import spell
from clockhands.data.splits import FEWEST_ITEMS, redraw_training
from clockhands.errors import ConfigError, UsageError
from clockhands.runs.recipe import make_recipe


@pytest.fixture(scope="module")
def roles() -> Corpus:
    return open_corpus("roles", train=2000, validation=100, test=400)


def test_a_corpus_says_what_it_holds(roles: Corpus) -> None:
    with pytest.raises(UsageError, match="unknown split 'valid'; did you mean 'validation'"):
        roles["valid"]
    with pytest.raises(UsageError, match="is for translation; this needs one that holds documents"):
        roles.documents("train")
    assert roles.texts("test") == roles.sources("test") + roles.targets("test")


MADE: list[tuple[str, dict[str, Any]]] = [
    ("numbers", {"train": 400, "validation": 40, "test": 40, "longer": 5}),
    ("numbers", {"train": 500, "validation": 50, "test": 50, "largest": 999, "longer": 0}),
    ("roles", {"train": 100, "validation": 20, "test": 20}),
    ("algorithms", {"train": 300, "validation": 20, "test": 20, "longer": 5}),
]


@pytest.mark.parametrize(("name", "options"), MADE, ids=["numbers", "few numbers", "roles", "algorithms"])
def test_made_text_is_drawn_anew_without_what_is_held_out(name: str, options: dict[str, Any]) -> None:
    corpus = open_corpus(name, **options)
    first, second = (redraw_training(corpus, number) for number in (1, 2))
    assert len(first) == len(second) == len(corpus["train"])
    assert redraw_training(corpus, 1) == first
    assert len({tuple(corpus["train"]), tuple(first), tuple(second)}) == 3
    held_out = {pair.source for split in ("validation", "test") for pair in corpus.pairs(split)}
    assert held_out and not held_out & {pair.source for pair in first if isinstance(pair, Pair)}


def test_other_numbers_have_as_many_digits_and_are_no_longer_than_the_first() -> None:
    """Of 900 numbers of three digits 240 are trained on, so that a draw has most of them from the others."""
    corpus = open_corpus("numbers", train=300, validation=20, test=20, largest=999, longer=5)
    digits = {spell(number, "de"): len(str(number)) for number in range(1000)}
    first, other = corpus.pairs("train"), _redraw(corpus)
    counts = [Counter(digits.get(pair.source, 0) for pair in pairs) for pairs in (first, other)]
    assert counts[0] == counts[1] and counts[0][3] > 150
    drawn = {pair.source for pair in other if pair.source in digits}
    assert len(drawn & {pair.source for pair in first}) < 200
    assert max(map(len, drawn)) < min(len(pair.source) for pair in corpus.pairs("longer-4"))


def _redraw(corpus: Corpus) -> list[Pair]:
    return [pair for pair in redraw_training(corpus, 3) if isinstance(pair, Pair)]


def test_twins_stay_together() -> None:
    corpus = open_corpus("roles", train=60, validation=20, test=20)
    groups = Counter(pair.group for pair in _redraw(corpus))
    assert len(groups) == 30 and set(groups.values()) == {2}


def test_the_library_has_other_files_of_the_same_size_and_none_that_is_tested() -> None:
    corpus = open_corpus("stdlib", limit=300_000, validation=0.2, test=0.2)
    first, second = ([text for text in redraw_training(corpus, number) if isinstance(text, str)] for number in (1, 2))
    wanted = sum(map(len, corpus.documents("train")))
    assert sum(map(len, first)) == sum(map(len, second)) == wanted and first != second
    held_out = {*corpus.documents("validation"), *corpus.documents("test")}
    assert not held_out & {*first, *second}


def test_given_text_is_drawn_with_replacement() -> None:
    """Of n items drawn n times, 1 - 1/e are expected: 632 of 1,000, with a standard deviation of about 10."""
    corpus = Corpus("text", "language modelling", {"train": [f"line {n}" for n in range(1000)], "test": ["other"]})
    first = redraw_training(corpus, 1)
    assert len(first) == 1000 and set(first) < {*corpus["train"]}
    assert 590 < len(set(first)) < 675
    assert redraw_training(corpus, 1) == first != redraw_training(corpus, 2)


def test_too_few_documents_cannot_be_drawn_anew() -> None:
    corpus = Corpus("text", "language modelling", {"train": ["one long book"] * (FEWEST_ITEMS - 1)})
    with pytest.raises(UsageError, match="'text' has 19 documents to train on, too few"):
        redraw_training(corpus, 1)


CONTRIBUTING = Path(__file__).resolve().parents[2] / "docs" / "contributing" / "corpus.md"
LINES = [f"the {animal} sleeps" for animal in ("cat", "dog", "owl", "bat", "ant", "bee", "elk", "emu")]


def poems(*, lines: int = 8, rhymed: bool = False) -> Corpus:
    """Lines of poems. They are short."""
    return Corpus("poems", "language modelling", {"train": LINES[:lines], "validation": LINES[:2]})


def mirrored(*, lines: int = 8) -> Corpus:
    """Lines, and the same lines backwards."""
    pairs = [Pair(line, line[::-1]) for line in LINES[:lines]]
    return Corpus("mirrored", "translation", {"train": pairs, "validation": pairs[:2]})


@pytest.fixture
def planted() -> Iterator[None]:
    corpus("poems", "language modelling")(poems)
    corpus("mirrored", "translation", one_answer=True)(mirrored)
    yield
    del CORPORA["poems"], CORPORA["mirrored"]


@pytest.mark.usefixtures("planted")
def test_a_corpus_that_is_added_is_found_with_its_options() -> None:
    assert CORPORA.listing()["poems"] == "Lines of poems"
    assert list(corpus_options("poems")) == ["lines", "rhymed"]
    assert len(open_corpus("poems", lines=3)["train"]) == 3


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("name", "architecture", "metric"), [("poems", "decoder", "loss"), ("mirrored", "encoder-decoder", "exact")]
)
def test_a_recipe_takes_the_task_from_the_corpus(name: str, architecture: str, metric: str) -> None:
    recipe = make_recipe({"data": {"corpus": name}, "training": {"max_steps": 1}}, {"data.lines": 4})
    assert recipe.model.kind == architecture
    assert choose_metric(recipe) == metric
    assert recipe.corpus_options["lines"] == 4


@pytest.mark.usefixtures("planted")
def test_a_model_that_reads_pairs_does_not_fit_a_corpus_of_documents() -> None:
    tables = {"data": {"corpus": "poems"}, "model": {"kind": "encoder-decoder"}, "training": {"max_steps": 1}}
    with pytest.raises(ConfigError, match="reads pairs, and corpus 'poems' has none"):
        make_recipe(tables, {})


@pytest.mark.parametrize(
    ("name", "options", "task"),
    [
        ("numbers", {}, "translation"),
        ("stdlib", {}, "language modelling"),
        ("text", {"train": "a"}, "language modelling"),
        ("table", {"train": "a"}, "translation"),
        ("table", {"train": "a", "text": "line"}, "language modelling"),
        ("huggingface", {"dataset": "a", "text": None}, "translation"),
        ("huggingface", {"dataset": "a", "text": "line"}, "language modelling"),
    ],
)
def test_the_task_is_known_before_the_text_is_read(name: str, options: dict[str, Any], task: str) -> None:
    assert CORPORA[name].find_task(options) == task


def test_a_corpus_that_declares_another_task_than_it_has_is_found_out() -> None:
    corpus("false poems", "translation")(poems)
    try:
        with pytest.raises(
            ValueError, match="declares the task 'translation', and what it opened is for 'language mod"
        ):
            open_corpus("false poems")
    finally:
        del CORPORA["false poems"]


@pytest.mark.parametrize("name", ["numbers", "roles"])
def test_a_corpus_is_a_function_of_its_seed(name: str) -> None:
    sizes = {"train": 200, "validation": 20, "test": 20}
    assert open_corpus(name, **sizes).splits == open_corpus(name, **sizes).splits
    assert open_corpus(name, **sizes).splits != open_corpus(name, **sizes, seed=1).splits


def test_the_catalogue_names_all_faults_at_once() -> None:
    with pytest.raises(UsageError, match="unknown corpus 'number'; did you mean 'numbers'"):
        open_corpus("number")
    with pytest.raises(ConfigError) as caught:
        open_corpus("parallel", sorce="a", holdout="half", source=3)
    assert caught.value.faults == (
        "unknown option of parallel 'sorce'; did you mean 'source'?",
        "holdout is 'half', but must be a number",
        "source is 3, but must be text or a path or a list of texts",
        "target is missing (text or a path or a list of texts)",
    )
    assert corpus_options("numbers")["largest"].default == 999_999
    assert {"numbers", "roles", "stdlib"} <= set(CORPORA)


def test_only_corpora_whose_answers_are_unique_count_exact_matches() -> None:
    """Text that people translated has many right translations; what is made has one for each source, or says not so."""
    unique = {name for name, entry in CORPORA.items() if entry.one_answer}
    assert {"roles", "numbers", "algorithms"} <= unique and not unique & {"parallel", "table", "huggingface", "text"}
    for name in unique:
        answers: dict[str, set[str]] = {}
        opened = open_corpus(name)
        for pair in (pair for split in opened for pair in opened.pairs(split)):
            answers.setdefault(pair.source, set()).add(pair.target)
        assert [source for source, targets in answers.items() if len(targets) > 1] == [], name


def test_the_example_of_contributing_is_a_corpus() -> None:
    """Its file and its test, as they stand there."""
    section = CONTRIBUTING.read_text("utf8").split("# Adding a corpus")[1].split("\n## ")[0]
    file, test = (re.sub("^   ", "", block, flags=re.M) for block in re.findall(r"```python\n(.*?)```", section, re.S))
    names: dict[str, Any] = {}
    try:
        exec(file, names)
        assert CORPORA["mirror"].find_task({}) == "translation"
        exec(test, names)
        names["test_every_string_is_turned_round"]()
        sizes = {
            split: len(items) for split, items in open_corpus("mirror", train=5, validation=2, test=3).splits.items()
        }
        assert sizes == {"train": 5, "validation": 2, "test": 3}
    finally:
        del CORPORA["mirror"]
