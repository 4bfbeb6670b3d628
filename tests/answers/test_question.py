"""A question's file: what it holds, and all that is wrong with it in one message."""

from __future__ import annotations

from pathlib import Path

import pytest
from question import read_question, read_questions

from clockhands.errors import ConfigError

TEXT = """
asked = "Why?"
place = 1
topic = "input"
answer = "Because it is so."
short = "So it is."
why = "One. Two. Three."
caption = "A picture."
limits = "Nowhere."
[try]
code = "print(1)"
prints = "1"
[table]
note = "It counts."
columns = ["a", "b"]
rows = [["1", "2"]]
[[claim]]
number = 7
says = "It is."
verdict = "depends"
on = "the moon"
because = "It is."
"""


def test_a_file_is_a_question(tmp_path: Path) -> None:
    (tmp_path / "so.toml").write_text(TEXT, "utf8")
    question = read_question(tmp_path / "so.toml")
    assert (question.name, question.attempt.prints, question.rows, question.studies) == ("so", "1", (("1", "2"),), ())
    assert question.claims[0].number == 7 and question.claims[0].rests == {}
    assert read_questions(tmp_path) == {"so": question}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Because it is so.", "Because " + "word " * 14 + "word.", "answer has 16 words; at most 15"),
        ("So it is.", "word " * 13, "short has 13 words; at most 12"),
        ("Because it is so.", "It is so.", "answer does not say because"),
        ("it is so.", "it is (so).", "answer has a bracket"),
        ("it is so.", "it is. So.", "answer must be one sentence"),
        ("it is so.", "it is so", "answer must be one sentence"),
        ('[["1", "2"]]', '[["1"]]', "a row of the table has 1 cells and there are 2 columns"),
        ('rows = [["1", "2"]]', 'rows = []\nmore = [["1", "2"]]', "folded rows, more, and no rows"),
        ('"input"', '"inputs"', "unknown topic 'inputs'; did you mean 'input'"),
        ('"depends"', '"maybe"', "unknown verdict 'maybe'"),
        ('on = "the moon"', "", "claim 7: the verdict is 'depends', and on is missing"),
        ('"depends"', '"undecided"', "claim 7: the verdict is 'undecided', and cost is missing"),
        ('why = "One. Two. Three."', "", "why is missing"),
        ("place = 1", "place = 1\nplaces = 2", "unknown key 'places'; did you mean 'place'"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "so.toml").write_text(TEXT.replace(old, new), "utf8")
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        read_question(tmp_path / "so.toml")


def test_a_decimal_is_no_end_of_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "so.toml").write_text(TEXT.replace("it is so.", "it is 1.5 times so."), "utf8")
    assert read_question(tmp_path / "so.toml").answer == "Because it is 1.5 times so."


def test_what_a_text_compares_is_read(tmp_path: Path) -> None:
    guards = """
[[ordered]]
study = "which-layers"
claim = "Nobody knows."
undecided = ["rope", "base 100"]
[[ordered]]
study = "scale"
claim = "It helps."
more = "a"
less = "b"
on = "before: loud"
name = "louder"
[[numbers]]
claim = "It falls."
descending = ["2", "1"]
"""
    (tmp_path / "so.toml").write_text(TEXT + guards, "utf8")
    question = read_question(tmp_path / "so.toml")
    assert [told.verdict for told in question.ordered] == ["undecided", "reproduced"]
    assert [told.ordering.variants for told in question.ordered] == [("rope", "base 100"), ("a", "b")]
    assert [told.name for told in question.ordered] == ["", "louder"]
    assert question.ordered[1].ordering.on == "before: loud" and list(question.numbers[0].descending) == ["2", "1"]


def test_a_name_stands_for_one_comparison(tmp_path: Path) -> None:
    pair = '\n[[ordered]]\nstudy = "scale"\nclaim = "It helps."\nmore = "a"\nless = "b"\nname = "twice"\n'
    (tmp_path / "so.toml").write_text(TEXT + 2 * pair, "utf8")
    with pytest.raises(ConfigError, match="two comparisons have the name 'twice'"):
        read_question(tmp_path / "so.toml")
