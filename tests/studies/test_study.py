"""A study's file: what it holds, and what is wrong with it in one message."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clockhands.errors import ConfigError, DataError
from clockhands.studies import STUDIES, read_study

TEXT = """
question = "Why?"
place = 1
claims = ["Because."]
design = "Two variants."
answer = "[[score:none]]."
change = "Nothing."
[plan]
recipe = "recipes/numbers.toml"
seeds = 2
vary = { "position.scheme" = ["sinusoidal", "none"] }
[[reading]]
when = { none = "worse" }
say = "So it needs positions."
"""


def test_a_file_is_a_study(tmp_path: Path) -> None:
    path = tmp_path / "why.toml"
    path.write_text(TEXT, "utf8")
    shutil.copytree(STUDIES["scale"].folder / "recipes", tmp_path / "recipes")
    study = read_study(path)
    assert (study.name, study.trials, study.minutes, study.unscored) == ("why", 4, 1, False)
    plan = study.make_plan(seeds=3)
    assert plan.title == "Why?" and plan.seeds == (1, 2, 3) and plan.metric == "exact"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('change = "Nothing."', "", "change is missing"),
        ("place = 1", "place = 1\ntitle = 'x'", "unknown key 'title'"),
        ("[[reading]]", "[size.cpu]\nbudget = { steps = 9 }\n[[reading]]", r"\[size\.cpu\] changes nothing"),
        ('none = "worse"', 'none = "wors"', "unknown verdict 'wors'; did you mean 'worse'"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "why.toml"
    path.write_text(TEXT.replace(old, new), "utf8")
    with pytest.raises(ConfigError, match=message):
        read_study(path)


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "why.toml").write_text("question = ", "utf8")
    with pytest.raises(DataError, match="is not TOML"):
        read_study(tmp_path / "why.toml")


def test_the_example_of_contributing_is_a_study(tmp_path: Path) -> None:
    """One file, found by its name: the text of CONTRIBUTING as it stands there."""
    text = (Path(__file__).parent.parent.parent / "docs" / "contributing" / "study.md").read_text("utf8")
    block = "question" + text.partition("```toml\nquestion")[2].partition("```")[0]
    (tmp_path / "how-many-heads.toml").write_text(block, "utf8")
    shutil.copytree(STUDIES["scale"].folder / "recipes", tmp_path / "recipes")
    study = read_study(tmp_path / "how-many-heads.toml")
    plan = study.make_plan()
    assert study.trials == len(plan.trials) == 20 and plan.baseline == "4"
    assert study.place not in {other.place for other in STUDIES.values()}
