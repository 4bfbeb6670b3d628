"""The board: which releases, their environments, and what each broke and mended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clockhands.checking import board
from clockhands.checking.result import Result
from clockhands.checking.verdict.outcome import Outcome
from clockhands.errors import CheckpointError, UsageError


def result(model: str, fault: str = "", code: str = "abcd", **verdicts: str) -> Result:
    outcomes = tuple(
        Outcome(name, verdict, cause="" if verdict == "N/A" else f"why {name}", reason=f"no {name} here")  # type: ignore[arg-type]
        for name, verdict in verdicts.items()
    )
    return Result(model, "causal", "RoPE", outcomes, {"code": code}, fault=fault)


def test_the_newest_release_of_each_of_the_last_minors() -> None:
    releases = ["5.10.4", "5.9.0", "5.10.2", "5.11.0", "4.57.6"]
    assert board.choose_minors(releases, 2) == ["5.10.4", "5.11.0"]
    assert board.choose_minors(releases, 9) == ["4.57.6", "5.9.0", "5.10.4", "5.11.0"]


def test_what_pip_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "transformers (5.2.0)\nAvailable versions: 5.2.0, 5.1.1, 5.1.0, 5.1.0rc1, 5.0.0\n"
    monkeypatch.setattr(board, "_run", lambda *_: subprocess.CompletedProcess([], 0, said, ""))
    assert board.find_releases("2") == ["5.1.1", "5.2.0"]
    assert board.find_releases("5.2.0, 5.0.0") == ["5.0.0", "5.2.0"]


@pytest.mark.parametrize("wanted", ["0", "-1", "new", "5.2", ""])
def test_what_names_no_releases_is_refused(wanted: str) -> None:
    with pytest.raises(UsageError, match="neither a number of minor releases nor versions"):
        board.find_releases(wanted)


def test_what_a_release_broke_and_mended() -> None:
    swept = {
        "5.1.0": [result("a", shift="PASS", cache="FAIL", gaps="LIBRARY"), result("b", fault="cannot be built")],
        "5.2.0": [result("a", shift="FAIL", cache="PASS", gaps="FAIL"), result("b", shift="FAIL")],
        "5.3.0": [result("a", shift="FAIL", cache="WARN", gaps="N/A")],
    }
    data = board.compare_releases(swept, whole=False)
    first, second, third = data["releases"]
    assert (first["broke"], first["mended"], first["absent"]) == ([], [], ["b"])
    assert second["broke"] == [["a", "shift", "PASS", "FAIL", "why shift", ""]], "b has no cell before to compare with"
    assert second["mended"] == [["a", "cache", "FAIL", "PASS", "why cache", ""]], "the cause is that of the failure"
    assert third["broke"] == third["mended"] == [], "from WARN to PASS is neither"
    assert third["absent"] == third["lost"] == ["b"] and second["lost"] == []
    assert (second["own"], second["library"]) == (3, 0)


def test_what_did_not_apply_is_neither_broken_nor_mended() -> None:
    from clockhands.report.board_page import make_board_page

    swept = {
        "5.1.0": [result("a", resume="N/A", shift="WARN", gaps="FAIL", cache="FAIL")],
        "5.2.0": [result("a", resume="FAIL", shift="LIBRARY", gaps="N/A", cache="WARN")],
    }
    data = board.compare_releases(swept, whole=True)
    first, second = data["releases"]
    kinds = ("broke", "mended", "began_failing", "ended_failing")
    assert [[change[1] for change in second[kind]] for kind in kinds] == [["shift"], ["cache"], ["resume"], ["gaps"]]
    assert second["began_failing"] == [["a", "resume", "N/A", "FAIL", "why resume", "no resume here"]]
    assert second["ended_failing"] == [["a", "gaps", "FAIL", "N/A", "why gaps", "no gaps here"]]
    assert not any(first[kind] for kind in kinds)
    page = make_board_page(data)
    sentences = ("The release did not break these checks", "The release did not mend these checks")
    assert all(sentence in page for sentence in sentences)
    swept["5.1.0"] = [result("a", resume="PASS", shift="PASS", gaps="PASS", cache="PASS")]
    page = make_board_page(board.compare_releases(swept, whole=True))
    assert not any(sentence in page for sentence in sentences)


def test_a_model_that_a_release_cannot_build_any_more_is_named() -> None:
    from clockhands.report.board_page import make_board_page

    swept = {"5.1.0": [result("a", shift="PASS"), result("b")], "5.2.0": [result("a", fault="lost"), result("b")]}
    assert "The release before could build a." in make_board_page(board.compare_releases(swept, whole=True))
    swept["5.1.0"] = [result("b")]
    assert "The release before could build" not in make_board_page(board.compare_releases(swept, whole=True))


def test_the_page_counts_results_by_the_version_of_the_checks() -> None:
    from clockhands.report.board_page import make_board_page

    swept = {"5.1.0": [result("a"), result("b")], "5.2.0": [result("a"), result("b", code="ef01")]}
    page = make_board_page(board.compare_releases(swept, whole=True))
    assert "Measured with 2 versions of the checks: abcd (3 results), ef01 (1 result)" in page


def test_many_models_of_one_cause_are_folded() -> None:
    from clockhands.report.board_page import make_board_page

    def make(count: int) -> str:
        return make_board_page(
            board.compare_releases({"5.1.0": [result(f"m{n}", shift="FAIL") for n in range(count)]}, whole=True)
        )

    assert "<summary>9 models</summary>" in make(9) and "<summary>" not in make(8)


def test_the_page_says_that_it_is_a_sample_and_which() -> None:
    from clockhands.report.board_page import make_board_page

    swept = {"5.1.0": [result("a", shift="PASS")], "5.2.0": [result("a", shift="FAIL")]}
    page = make_board_page(board.compare_releases(swept, whole=False))
    assert "a sample of 1: a. The others were not looked at" in page
    assert "Measured with version abcd of the checks" in page
    assert "sample" not in make_board_page(board.compare_releases(swept, whole=True))


def test_an_environment_is_made_once_and_a_failure_of_pip_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], doing: str) -> Any:
        commands.append(command)
        (tmp_path / "environments/5.1.0/lib/python3/site-packages").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(board, "_run", run)
    python = board.make_environment(tmp_path, "5.1.0")
    assert python == tmp_path / "environments/5.1.0/bin/python"
    assert [("--no-deps" in command) for command in commands] == [False, True, False]
    (packages,) = tmp_path.glob("environments/5.1.0/lib/python*/site-packages/*.pth")
    assert any(place.endswith("-packages") for place in packages.read_text().split())
    packages.write_text("/where/the/source/was\n")
    board.make_environment(tmp_path, "5.1.0")
    assert len(commands) == 3
    assert any(place.endswith("-packages") for place in packages.read_text().split())
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="trying failed with code 3: no such release"):
        board._run([sys.executable, "-c", "import sys; sys.stderr.write('no such release'); sys.exit(3)"], "trying")
