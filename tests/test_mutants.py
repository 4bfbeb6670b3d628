"""`make mutants`: which changes are tried, by which tests, and what is said of those that nothing noticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import mutants
from tests.covering import beside, git, imports, schemes_of
from tests.mutants import ROOT, Mutant, Result, annotations, difference, draw, report, run_tests


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
    for text in ("from clockhands.a.b import c", "import clockhands.a.b", "from clockhands.a import x, b"):
        assert re.search(imports("clockhands.a.b"), text)
    for text in ("from clockhands.a.bc import d", "from clockhands.a import bc"):
        assert not re.search(imports("clockhands.a.b"), text)


def test_tests_run_until_one_fails_or_their_time_is_over(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    tests = {"a": "pass", "b": "pass", "c": "assert False", "d": "import os; os._exit(1)"}
    (root / "test_x.py").write_text("".join(f"def test_{n}():\n    {body}\n" for n, body in tests.items()), "utf8")

    def end(*names: str, seconds: float = 60) -> tuple[str, str]:
        return run_tests(root, [f"test_x.py::test_{name}" for name in names], seconds)

    assert end("b", "a") == ("passed", "")
    assert end("a", "c", "b") == ("failed", "test_x.py::test_c")
    assert end("b", "d", "a") == ("failed", "test_x.py::test_d"), "a test in which the process ends has noticed it"
    assert end("b", "c", seconds=0) == ("passed", ""), "the second does not begin"
    (root / "test_none.py").touch()
    assert run_tests(root, ["test_none.py"], 60) == ("no tests", "")


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
    chosen, session = places(12), tmp_path / "session.jsonl"
    assert mutants.read_session(session) == ([], {})
    mutants.begin(session, chosen)
    with session.open("a") as stream:
        stream.write('[3, "survived", "-b | +c", ""]\n[3, "killed", "-b | +c", "test_x"]\n')
    assert mutants.read_session(session) == (chosen, {3: Result("killed", "-b | +c", "test_x")})
