"""`make mutants`: which changes are tried, by which tests, and what is said of those that nothing noticed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import covering, mutants
from tests.covering import Map, beside, bodies, git, imports, noticed_by, ordered, schemes_of, statement
from tests.mutants import ROOT, Group, Mutant, Result, annotations, difference, draw, report, run_tests


def places(count: int, changes: int = 3) -> list[Mutant]:
    return [
        Mutant(f"src/clockhands/{line % 7}.py", f"core/{change}", line, (line, 4), (line, 5))
        for line in range(count)
        for change in range(changes)
    ]


def test_a_sample_is_decided_by_its_seed_and_has_one_change_of_a_place() -> None:
    found = places(200)
    drawn = draw(found, 50, 3)
    assert drawn == draw(list(reversed(found)), 50, 3) != draw(found, 50, 4)
    assert len({(one.path, one.start) for one in drawn}) == 50
    assert len(draw(found, 1000, 0)) == 200
    assert {one.operator for one in drawn} == {"core/0", "core/1", "core/2"}


def test_annotations_and_what_only_type_checkers_read_are_left_alone() -> None:
    text = "if TYPE_CHECKING:\n    import a\ndef f(x: int | None = 1 | 2) -> int | str:\n    y: int | None = 3\n"
    lines = text.splitlines()
    covered = [(start, end) for start, end in annotations(text)]
    assert ((1, 0), (2, 12)) in covered
    said = {lines[start[0] - 1][start[1] : end[1]] for start, end in covered if start[0] == end[0]}
    assert said == {"int | None", "int | str"}


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("files.py", ["tests/test_files.py"]),
        ("schemes/rotary/spectra.py", ["tests/schemes/rotary/test_spectra.py"]),
        ("positions/making.py", ["tests/test_positions.py"]),
    ],
)
def test_the_beside_a_module_are_those_of_its_mirrored_path(module: str, tests: list[str]) -> None:
    assert beside(f"src/clockhands/{module}") == tests


def test_a_scheme_has_its_laws_and_oracle_beside_it() -> None:
    chosen = beside("src/clockhands/schemes/bias/fire.py")
    assert chosen[:2] == ["tests/schemes/bias/test_fire.py", "tests/schemes/test_laws.py"]
    assert chosen[-2:] == ["-k", "[fire or -fire or test_fire"]
    assert schemes_of(ROOT / "src/clockhands/schemes/bias/swin.py") == ["swin", "log-cpb"]


def test_every_module_of_the_package_has_tests_that_exist() -> None:
    listed = mutants.modules(git("ls-files", "src/clockhands").split())
    chosen = {path: beside(path) for path in listed}
    files = {name for arguments in chosen.values() for name in arguments if name.endswith(".py")}
    assert files and all((ROOT / name).is_file() for name in files)
    assert not [path for path, arguments in chosen.items() if not arguments]


def test_an_import_of_a_module_is_known_in_every_form() -> None:
    import re

    for text in ("from clockhands.a.b import c", "import clockhands.a.b", "from clockhands.a import x, b"):
        assert re.search(imports("clockhands.a.b"), text)
    for text in ("from clockhands.a.bc import d", "from clockhands.a import bc"):
        assert not re.search(imports("clockhands.a.b"), text)


TEXT = """import a
X = 1 + a.b
def f(x):
    if (x and
            X):
        return g(
            x + 1)
    return 0
"""


def test_a_line_belongs_to_its_statement_and_runs_on_import_or_in_a_call() -> None:
    assert [list(statement(TEXT, line)) for line in (2, 5, 7, 8)] == [[2], [4, 5], [6, 7], [8]]
    assert bodies(TEXT) == {4, 5, 6, 7, 8}


def measured(data: Path, runs: dict[str, set[tuple[int, int]]], module: str = "src/clockhands/m.py") -> Map:
    """A map made by coverage itself, of tests that each ran some steps from line to line of one module."""
    from coverage import CoverageData

    kept = CoverageData(str(data))
    for test, steps in runs.items():
        kept.set_context(f"{test}|run")
        kept.add_arcs({f"/anywhere/{module}": steps})
    kept.write()
    return Map(data)


def test_the_tests_of_a_line_are_those_that_run_its_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {
        "tests/test_far.py::test_a[p|q]": {(-3, 4), (4, 6), (6, -3)},
        "tests/test_m.py::test_b": {(-3, 4), (4, 8), (8, -3)},
        "tests/test_m.py::test_imports": {(-1, 1), (1, 2), (2, -1)},
    }
    known = measured(tmp_path / "map.coverage", runs)
    monkeypatch.setattr(Map, "holds_for", lambda self, path: True)
    module = "src/clockhands/m.py"
    assert known.choose(module, TEXT, 7) == ["tests/test_far.py::test_a[p|q]"]
    assert known.choose(module, TEXT, 5) == ["tests/test_m.py::test_b", "tests/test_far.py::test_a[p|q]"]
    # What runs on import is run by everything: it has the tests that call a function of the module.
    assert known.choose(module, TEXT, 2) == known.choose(module, TEXT, 5)
    assert known.choose("src/clockhands/other.py", TEXT, 5) == []


def test_a_map_holds_for_what_did_not_change_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "ROOT", tmp_path)
    for name in ("kept.py", "changed.py"):
        (tmp_path / name).write_text("x = 1\n", "utf8")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    known = measured(tmp_path / "map.coverage", {"tests/test_m.py::test_b": {(-1, 1)}})
    assert not known.holds_for("kept.py"), "nobody knows at which commit it was made"
    (tmp_path / "map.commit").write_text(git("rev-parse", "HEAD"), "utf8")
    (tmp_path / "changed.py").write_text("x = 2\n", "utf8")
    assert known.holds_for("kept.py")
    assert not known.holds_for("changed.py")


def test_the_mirrored_file_comes_first_and_one_case_of_every_test_before_a_second() -> None:
    quick, slow = "tests/a/test_b.py::test_quick", "tests/a/test_b.py::test_slow"
    lines = {f"{quick}[1]": 5, f"{quick}[2]": 6, slow: 900, "tests/a/test_c.py::test_near": 50, "tests/test_d.py::x": 1}
    expected = [f"{quick}[1]", slow, f"{quick}[2]", "tests/a/test_c.py::test_near", "tests/test_d.py::x"]
    assert ordered(reversed(expected), lines, "tests/a/test_b.py") == expected


def test_chosen_tests_run_in_their_order_until_one_fails_or_their_time_is_over(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    said = 'open("order", "a").write({0!r})'
    tests = {"a": said.format("a"), "b": said.format("b"), "c": "assert False"}
    (root / "test_x.py").write_text("".join(f"def test_{n}():\n    {body}\n" for n, body in tests.items()), "utf8")

    def end(*names: str, seconds: float = 60) -> tuple[str, str, str]:
        (root / "order").write_text("", "utf8")
        (tmp_path / "ran.txt").unlink(missing_ok=True)
        told = run_tests(root, [Group(("test_x.py",), tuple(f"test_x.py::test_{name}" for name in names))], seconds)
        return told, (root / "order").read_text("utf8"), noticed_by(tmp_path / "ran.txt")

    assert end("b", "a") == ("passed", "ba", "")
    assert end("a", "c", "b") == ("failed", "a", "test_x.py::test_c")
    assert end("b", "a", "c", seconds=0) == ("passed", "b", "")
    assert end("z") == ("no tests", "", "")
    assert mutants.failing_anyway(root, ["test_x.py::test_a", "test_x.py::test_c"]) == {"test_x.py::test_c"}


def test_the_test_in_which_a_process_was_ended_has_noticed_the_change(tmp_path: Path) -> None:
    (tmp_path / "ran.txt").write_text("begun a::b\nended a::b\nbegun a::c[d e]\n", "utf8")
    assert noticed_by(tmp_path / "ran.txt") == "a::c[d e]"
    assert noticed_by(tmp_path / "nothing.txt") == ""


def test_what_is_reported_is_counted_with_its_interval_and_its_survivors() -> None:
    chosen = places(40, changes=1)
    results = {one: Result("killed" if at % 10 else "survived", "- a | + b") for at, one in enumerate(chosen[:30])}
    told = report(results, len(chosen))
    # Wilson's interval of 27 of 30.
    assert told.startswith("27 of 30 mutants killed: 90.0% [74.4%, 96.5%]")
    assert "10 of 40 were not tested" in told
    assert told.count("survived: src/clockhands") == 3
    assert difference("a\nb\n", "a\nc\n") == "-b | +c"
    assert report({}, 0) == "no mutant was tested"


def test_a_session_goes_on_with_the_mutants_that_it_was_begun_with(tmp_path: Path) -> None:
    pytest.importorskip("cosmic_ray")
    chosen, session = places(12), tmp_path / "session.sqlite"
    assert mutants.planned(session) == []
    mutants.begin(session, chosen)
    assert mutants.planned(session) == chosen
