"""A study's file: what it holds, and what is wrong with it in one message."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.cli import main
from clockhands.comparison.plan import Plan
from clockhands.errors import ConfigError, DataError, UsageError
from clockhands.studies import STUDIES, Study, read_study
from clockhands.studies.study import GivenText, read_given_text

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


NAMES = ("train.de", "train.en", "val.de", "val.en", "test_2016_flickr.de", "test_2016_flickr.en")


def _write(folder: Path) -> Study:
    """Write short files, and return the study as if these were its text."""
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text(f"a line of {name}\n" * 3, "utf8")
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in NAMES}
    study = STUDIES["real-translation"]
    return replace(study, text=GivenText(study.text.source, digests))


def test_the_same_text_elsewhere_is_the_same_plan(tmp_path: Path) -> None:
    study = _write(tmp_path / "one")
    (tmp_path / "one").rename(tmp_path / "two")
    here, nowhere = study.make_plan(text=tmp_path / "two"), study.make_plan()
    assert here.fingerprint == nowhere.fingerprint
    assert str(tmp_path) not in json.dumps(here.to_dict()), "no path of this machine is written"
    stored = Plan.from_dict(json.loads(json.dumps(here.to_dict())))
    assert stored.fingerprint == here.fingerprint
    assert stored.to_dict()["recipe"] == nowhere.to_dict()["recipe"], "nor is it taken for another task"
    assert here.get_recipe("rope", 1).corpus_options["test_source"] == str(tmp_path / "two" / "test_2016_flickr.de")


def test_another_text_is_refused(tmp_path: Path) -> None:
    study = _write(tmp_path / "text")
    (tmp_path / "text" / "val.en").write_text("other words\n" * 3, "utf8")
    with pytest.raises(UsageError, match=r"val\.en in .*text is not the text of this study \(its SHA-256 differs\)"):
        study.make_plan(text=tmp_path / "text")
    (tmp_path / "text" / "val.en").unlink()
    with pytest.raises(DataError, match=r"does not hold val\.en; get .* and name their folder with --text"):
        study.make_plan(text=tmp_path / "text")


def test_other_digests_are_another_plan(tmp_path: Path) -> None:
    study = _write(tmp_path / "text")
    assert study.make_plan().fingerprint != STUDIES["real-translation"].make_plan().fingerprint


def test_the_command_asks_for_text_and_refuses_it_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "real-translation", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert "needs text that does not come with Clockhands" in error and "github.com/multi30k/dataset" in error
    assert main(["study", "scale", "--dry-run", "--text", str(tmp_path)]) == 2
    assert "makes its own text: leave --text out" in capsys.readouterr().err


def test_a_key_too_many_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\[text\] holds source and files, and nothing else"):
        read_given_text({"source": "x", "file": {}}, "a study")
