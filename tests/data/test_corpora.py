"""The built-in corpora keep what they promise: exact translations, splits that share nothing, stated ceilings."""

from __future__ import annotations

from collections import Counter

import pytest
from num2words import CONVERTER_CLASSES, num2words

from clockhands.data import CORPORA, Corpus, Pair, corpus_options, open_corpus, order_blind_ceiling
from clockhands.data.corpora.numbers import FAULTS, spell
from clockhands.data.corpora.roles import NAMES, NOUNS, VERBS
from clockhands.errors import ConfigError, DataError, UsageError

SMALL = {"train": 300, "validation": 40, "test": 60, "longer": 20}


@pytest.fixture(scope="module")
def numbers() -> Corpus:
    return open_corpus("numbers", **SMALL)


@pytest.fixture(scope="module")
def roles() -> Corpus:
    return open_corpus("roles", train=2000, validation=100, test=400)


def test_numbers_are_what_num2words_writes(numbers: Corpus) -> None:
    written = {(num2words(n, lang="de"), num2words(n, lang="en")) for n in range(1000)}
    short = [pair for pair in numbers.pairs("train") if (pair.source, pair.target) in written]
    # A third of the digits counts lie below 1000, so the short ones are a good part of the training text.
    assert len(short) > 50
    by_source = {num2words(n, lang="de"): num2words(n, lang="en") for n in range(1000)}
    assert all(by_source[pair.source] == pair.target for pair in numbers.pairs("test") if pair.source in by_source)


@pytest.mark.parametrize("language", sorted(CONVERTER_CLASSES))
def test_every_language_is_spelled_as_num2words_does(language: str) -> None:
    small, large = (0, 7, 19, 21, 80, 99, 100, 101, 999), (1000, 1001, 21_345, 700_071, 10**6, 10**9 + 1)
    for number in small + large:
        try:
            expected = num2words(number, lang=language)
        except FAULTS:
            with pytest.raises(UsageError, match=f"num2words cannot write {number:,} in language {language!r}"):
                spell(number, language)
        else:
            assert spell(number, language) == expected


def test_a_language_that_does_not_reach_that_far() -> None:
    with pytest.raises(UsageError, match="num2words cannot write 999,999,999,999 in language 'en_IN'"):
        spell(10**12 - 1, "en_IN")


def test_numbers_splits_have_their_sizes_and_share_nothing(numbers: Corpus) -> None:
    sizes = {split: len(numbers[split]) for split in numbers}
    assert {key: sizes[key] for key in ("validation", "test")} == {"validation": 40, "test": 60}
    assert sizes["longer-7"] == sizes["longer-8"] == sizes["longer-9"] == 20
    sources = [source for split in numbers for source in numbers.sources(split)]
    assert max(Counter(sources).values()) == 1


def test_longer_numbers_are_longer_but_hold_no_new_word(numbers: Corpus) -> None:
    spelled = open_corpus("numbers", **SMALL, source="en", target="fr")
    for corpus in (numbers, spelled):
        short = [pair for pair in corpus.pairs("train") if "illion" not in pair.source]
        longer = [pair for split in corpus if split.startswith("longer") for pair in corpus.pairs(split)]
        assert min(len(pair.source) for pair in longer) > max(len(pair.source) for pair in short)
        assert min(len(pair.target) for pair in longer) > max(len(pair.target) for pair in short)
    words = {word for text in spelled.sources("train") for word in text.replace(",", "").replace("-", " ").split()}
    needed = {word for text in spelled.sources("longer-9") for word in text.replace(",", "").replace("-", " ").split()}
    assert needed <= words


def test_numbers_cover_a_small_range_completely() -> None:
    corpus = open_corpus("numbers", largest=99, train=80, validation=10, test=10, longer=0)
    sources = {source for split in corpus for source in corpus.sources(split)}
    assert sources == {num2words(n, lang="de") for n in range(100)}
    assert list(corpus) == ["train", "validation", "test"]


@pytest.mark.parametrize("name", ["numbers", "roles"])
def test_a_corpus_is_a_function_of_its_seed(name: str) -> None:
    sizes = {"train": 200, "validation": 20, "test": 20}
    assert open_corpus(name, **sizes).splits == open_corpus(name, **sizes).splits
    assert open_corpus(name, **sizes).splits != open_corpus(name, **sizes, seed=1).splits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "dee"}, "unknown language 'dee'; did you mean 'de'"),
        ({"largest": 5}, "largest=5 is outside 9 to"),
        ({"test": 0}, "test=0; every split needs at least one"),
        ({"largest": 999}, "ask for 21,500 numbers, and from 0 to 999 there are 1,000"),
    ],
)
def test_numbers_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_corpus("numbers", **options)


def test_every_role_swapped_twin_is_in_the_same_split(roles: Corpus) -> None:
    for split in roles:
        sources = set(roles.sources(split))
        for source in sources:
            agent, verb, patient = _parts(source)
            assert f"{patient} {verb} {agent}" in sources


def test_roles_translate_the_roles(roles: Corpus) -> None:
    esperanto = {**NAMES, **NOUNS}
    for pair in roles.pairs("test"):
        agent, verb, patient = _parts(pair.source)
        words = pair.target.split()
        at = words.index(VERBS[verb])
        assert words[at - 1] == esperanto[agent.split()[-1]]
        assert words[-1] == esperanto[patient.split()[-1]] + "n"
        assert not any(word.endswith("n") for word in words[:at])
        assert all(word.endswith("n") for word in words[at + 1 :] if word != "la")


def test_roles_splits_share_no_sentence_and_no_capital_tells_the_order(roles: Corpus) -> None:
    sources = [source for split in roles for source in roles.sources(split)]
    assert max(Counter(sources).values()) == 1
    assert not any(source.startswith(("A ", "An ", "The ")) for source in sources)


def test_the_order_blind_ceiling_of_hand_made_pairs() -> None:
    twins = [Pair("Tom bit Ann", "1"), Pair("Ann bit Tom", "2")]
    assert order_blind_ceiling(twins) == 0.5
    # A bag with three readings of which one occurs twice, and a bag with one: (2 + 1) of 5.
    pairs = [Pair("a b c", "1"), Pair("c b a", "1"), Pair("b a c", "2"), Pair("c a b", "3"), Pair("a a b", "4")]
    assert order_blind_ceiling(pairs) == 3 / 5
    with pytest.raises(UsageError, match="at least one pair"):
        order_blind_ceiling([])


def test_roles_state_their_ceiling(roles: Corpus) -> None:
    stated = roles.facts["order-blind ceiling, test"]
    assert stated == order_blind_ceiling(roles.pairs("test"))
    assert 0.4 < float(stated) <= 0.5
    assert f"{stated:.1%}" in roles.description


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 5}, "test=5; sentences come in twins"),
        ({"adjectives": 1.5}, "adjectives=1.5 is a share"),
        ({"train": 100_000, "adjectives": 0.0}, "there are not 101,500 different sentences"),
    ],
)
def test_roles_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_corpus("roles", **options)


def test_stdlib_grows_with_its_limit_and_keeps_files_in_their_split() -> None:
    small, large = open_corpus("stdlib", limit=1_000_000), open_corpus("stdlib", limit=2_000_000)
    for split in ("train", "validation", "test"):
        assert set(small.documents(split)) <= set(large.documents(split))
    assert sum(len(text) for split in small for text in small.documents(split)) <= 1_000_000
    assert small.splits == open_corpus("stdlib", limit=1_000_000).splits
    for document in small.documents("test"):
        compile(document, "a document of stdlib", "exec")


def test_stdlib_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    with pytest.raises(UsageError, match="limit=10 characters"):
        open_corpus("stdlib", limit=10)
    with pytest.raises(UsageError, match=r"validation=0\.8 and test=0\.5"):
        open_corpus("stdlib", validation=0.8, test=0.5)
    with pytest.raises(UsageError, match="no file falls into validation and test"):
        open_corpus("stdlib", limit=100_000, validation=1e-9, test=1e-9)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="comes without its standard library"):
        open_corpus("stdlib")


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


def test_a_corpus_says_what_it_holds(roles: Corpus) -> None:
    with pytest.raises(UsageError, match="unknown split 'valid'; did you mean 'validation'"):
        roles["valid"]
    with pytest.raises(UsageError, match="is for translation; this needs one that holds documents"):
        roles.documents("train")
    assert roles.texts("test") == roles.sources("test") + roles.targets("test")


def _parts(source: str) -> tuple[str, str, str]:
    """Agent, verb and patient of a sentence of roles."""
    words = source.split()
    at = next(number for number, word in enumerate(words) if word in VERBS)
    return " ".join(words[:at]), words[at], " ".join(words[at + 1 :])
