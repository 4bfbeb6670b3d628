"""Which keys a table of a recipe takes, and how a table for all sides becomes one for each."""

from __future__ import annotations

from pathlib import Path

from clockhands.runs.recipe.keys import find_keys, has_unknown_selector, make_absolute, split_by_side


def test_the_scheme_and_the_corpus_decide_which_keys_there_are() -> None:
    rope, none = ({"position": {"scheme": scheme}} for scheme in ("rope", "none"))
    assert "base" in find_keys(rope, "position") and "base" not in find_keys(none, "position")
    assert "combine" in find_keys(none, "position")
    sides = {"position": {"scheme": "none", "encoder": "rope"}}
    assert "base" in find_keys(sides, "position.encoder") and "base" not in find_keys(sides, "position.decoder")
    assert "source" in find_keys({"data": {"corpus": "parallel"}}, "data")
    assert set(find_keys({"data": {"corpus": "nothing"}}, "data")) == {"corpus"}
    assert has_unknown_selector({"data": {"corpus": "nothing"}}, "data")
    assert not has_unknown_selector(rope, "position")


def test_a_side_with_a_scheme_of_its_own_takes_nothing_from_the_others() -> None:
    position = {"scheme": "rope", "base": 7.0, "encoder": {"scheme": "alibi"}, "decoder": {"layout": "half"}}
    assert dict(split_by_side(position)) == {
        "encoder": {"scheme": "alibi"},
        "decoder": {"scheme": "rope", "base": 7.0, "layout": "half"},
        "cross": {},
    }


def test_relative_paths_are_taken_from_a_folder() -> None:
    base = Path("/a/b")
    assert make_absolute("c.txt", base) == "/a/b/c.txt"
    assert make_absolute(["c", "/d"], base) == ["/a/b/c", "/d"]
    assert make_absolute("~/c", base) == str(Path.home() / "c")
    assert make_absolute(3, base) == 3
