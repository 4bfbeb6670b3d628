"""Choose the tests that can notice a change of a line: those that run it, or those beside its module.

The map of which test runs which line is the data file of coverage (its documented tables), measured with a context for
every test. It holds for the commit it was made at: a module that changed since has the tests beside it.
"""

from __future__ import annotations

import ast
import os
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/clockhands")
# Of the mirrored file and of all others. Collecting a file costs a second or more, whatever is chosen of it.
MOST_MIRRORED, MOST_OTHERS, MOST_FILES = 60, 60, 12


def beside(path: str, root: Path = ROOT) -> list[str]:
    """Return the arguments of pytest for the tests beside a module.

    The test at the mirrored path; the oracle and laws of the schemes that the module defines; otherwise the tests of
    its package that import the module; otherwise all of the mirrored folder, or of the nearest above it.
    """
    module = Path(path).relative_to(PACKAGE)
    folder = Path("tests") / module.parent
    mirrored = mirror(path)
    chosen = [mirrored] if (root / mirrored).is_file() else []
    if module.parts[0] == "schemes" and (names := schemes_of(root / path)):
        chosen += [f"tests/schemes/{file}.py" for file in ("test_laws", "test_scheme")]
        # The ids of the laws are "scheme(options)-side", after the values of other parameters; others are of the file.
        chosen += ["-k", " or ".join([f"{before}{name}" for name in names for before in "[-"] + [Path(mirrored).stem])]
    if chosen:
        return chosen
    dotted = ".".join(("clockhands", *module.with_suffix("").parts)).removesuffix(".__init__")
    every = sorted((root / "tests" / module.parts[0]).rglob("test_*.py")) + sorted((root / "tests").glob("test_*.py"))
    named = [file for file in every if file.name == f"test_{module.parts[0]}.py"]
    importing = [file for file in every if re.search(imports(dotted), file.read_text("utf8"))]
    near = [sorted((root / parent).glob("test_*.py")) for parent in (folder, *folder.parents[:-1])]
    return [str(file.relative_to(root)) for file in importing or named or next(filter(None, near), [])]


def mirror(path: str) -> str:
    """Return the path that the tests of a module have, whether or not there are any."""
    module = Path(path).relative_to(PACKAGE)
    folder = Path("tests") / module.parent
    stem = module.stem
    return str(folder.parent / f"test_{folder.name}.py" if stem == "__init__" else folder / f"test_{stem}.py")


def imports(module: str) -> str:
    """Return an expression for what imports a module or something from it."""
    package, _, name = module.rpartition(".")
    return rf"\b{re.escape(module)}\b|from {re.escape(package)} import .*\b{re.escape(name)}\b"


def schemes_of(path: Path) -> list[str]:
    """Return the catalogue's names of the classes that a file defines, read without importing it."""
    defined = set(re.findall(r"^class (\w+)", path.read_text("utf8"), flags=re.MULTILINE))
    text = (ROOT / PACKAGE / "schemes" / "__init__.py").read_text("utf8")
    return [name for name, kind in re.findall(r'"([\w-]+)": (\w+),', text) if kind in defined]


def statement(text: str, line: int) -> range:
    """Return the lines of the statement at a line: its head alone, where other statements stand in it."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            if line <= last:
                found = range(node.lineno, last + 1)
    return found


def bodies(text: str) -> set[int]:
    """Return the lines that run when a function is called, not when its module is imported."""
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {line for one in functions for line in range(one.body[0].lineno, (one.end_lineno or one.lineno) + 1)}


@dataclass(frozen=True)
class Map:
    """Which tests run a line: the data file of coverage, and beside it the commit that it was measured at."""

    data: Path

    @classmethod
    def make(cls, data: Path) -> None:
        """Run all tests under coverage and keep what each one runs. Some tests may fail."""
        data.parent.mkdir(parents=True, exist_ok=True)
        for old in data.parent.glob(f"{data.name}*"):
            old.unlink()
        commit = git("rev-parse", "HEAD")
        words = "-m pytest -q -n 2 --dist worksteal --cov --cov-context=test --cov-report="
        subprocess.run(
            [sys.executable, *words.split()],
            cwd=ROOT,
            env={**os.environ, "COVERAGE_FILE": str(data), "OMP_NUM_THREADS": "1"},
            check=False,
        )
        data.with_suffix(".commit").write_text(commit, "utf8")

    def holds_for(self, path: str) -> bool:
        """Tell whether a module is now as it was when the map was made."""
        commit = self.data.with_suffix(".commit")
        if not self.data.is_file() or not commit.is_file():
            return False
        words = ["git", "diff", "--quiet", commit.read_text("utf8").strip(), "--", path]
        return not subprocess.run(words, cwd=ROOT, check=False, capture_output=True).returncode

    @cached_property
    def lines_run(self) -> dict[str, int]:
        """How many lines of the package every test runs. Those that run few are mostly quick."""
        counted: dict[str, int] = defaultdict(int)
        for context, lines in self._ask(
            "select context, count(*) from arc join context on context.id = context_id group by context_id"
        ):
            counted[context.rsplit("|", 1)[0]] += lines
        counted.pop("", None)
        return dict(counted)

    def tests_of(self, path: str, lines: Iterable[int]) -> set[str]:
        """Return the ids of the tests that run any of some lines of a module."""
        wanted = set(lines)
        rows = self._ask(
            "select distinct context, tono from arc join context on context.id = context_id "
            "join file on file.id = file_id where path like ?",
            f"%/{path}",
        )
        return {context.rsplit("|", 1)[0] for context, line in rows if line in wanted} - {""}

    def _ask(self, query: str, *values: str) -> list[tuple[str, int]]:
        connection = sqlite3.connect(f"file:{self.data}?mode=ro", uri=True)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def choose(self, path: str, text: str, line: int) -> list[str]:
        """Return the tests to run for a line, in their order; none where the map does not hold or knows none.

        What runs on import has the tests that run any function of the module.
        """
        if not self.holds_for(path):
            return []
        called = bodies(text)
        lines = statement(text, line)
        found = self.tests_of(path, lines if lines[0] in called else called)
        return ordered(found, self.lines_run, mirror(path))


def ordered(tests: Iterable[str], lines_run: dict[str, int], mirrored: str) -> list[str]:
    """Return the tests of a line in the order in which they are tried: the mirrored file's first, near before far.

    One case of every function comes before the second of any, and those that run little before those that run much.
    """
    turn: dict[str, int] = defaultdict(int)
    keyed = []
    for test in sorted(tests, key=lambda test: (lines_run.get(test, 0), test)):
        function, file = test.split("[")[0], test.split("::")[0]
        keyed.append((turn[function], -nearness(file, mirrored), lines_run.get(test, 0), test))
        turn[function] += 1
    in_order = [key[-1] for key in sorted(keyed)]
    first = [test for test in in_order if test.startswith(f"{mirrored}::")][:MOST_MIRRORED]
    others = [test for test in in_order if not test.startswith(f"{mirrored}::")]
    files = list(dict.fromkeys(test.split("::")[0] for test in others))[:MOST_FILES]
    return first + [test for test in others if test.split("::")[0] in files][:MOST_OTHERS]


def nearness(file: str, other: str) -> int:
    """Return how many folders two paths share from the left."""
    return len(Path(os.path.commonpath([file, other])).parts)


def git(*words: str) -> str:
    """Return what git answers in this repository."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


class Chosen:
    """A plugin of pytest: run the chosen tests in their order until their time is over, and write down which ran.

    ``tests``: ids; an empty list means all that are collected. ``seconds``: of processor time, for what begins.
    ``record``: the file that gets a line for each test before it runs and one for how it ended.
    """

    def __init__(self, tests: Sequence[str], seconds: float, record: Path) -> None:
        self.rank = {test: rank for rank, test in enumerate(tests)}
        self.seconds, self.record, self.over = seconds, record, False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.rank:
            items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda item: self.rank[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(f"begun {nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(f"failed {report.nodeid}")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(f"ended {nodeid}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):  # type: ignore[no-untyped-def]
        result = yield
        if sum(os.times()[:4]) > self.seconds and not item.session.shouldfail:
            self.over = True
            item.session.shouldstop = "the time of the tests is over"
        return result

    def _write(self, line: str) -> None:
        with self.record.open("a", encoding="utf8") as file:
            file.write(line.replace("\n", " ") + "\n")


def noticed_by(record: Path) -> str:
    """Return the test that failed, or in which the process was ended, by what a plugin wrote down; "" for none."""
    if not record.is_file():
        return ""
    lines = [line.split(" ", 1) for line in record.read_text("utf8").splitlines()]
    failed = [test for what, test in lines if what == "failed"]
    ended = {test for what, test in lines if what == "ended"}
    open_ones = [test for what, test in lines if what == "begun" and test not in ended]
    return next(iter(failed + open_ones[-1:]), "")
