"""Run the tests of what a change touches, and a few laws, in at most 90 seconds: `make quick`.

    python tests/quick.py                                    # what differs from main, committed or not
    python tests/quick.py src/clockhands/schemes/bias/fire.py

A changed module has the tests at its mirrored path (of a scheme: its laws and its oracle) and those that import it; a
changed test has itself. Tests begin as long as there is time for them; how many did not is said. `make test` runs all.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.covering import PACKAGE, beside, git, imports, list_changed, name_module  # noqa: E402

SECONDS = 75
"""Time in which tests begin; what is left of the 90 seconds is for the last of them."""
LAWS = ("tests/schemes/test_laws.py", "tests/model/test_laws.py")
SAMPLE = ("[rope(", "[alibi(", "[sinusoidal(", "[cope(", "[rope]", "-rope]", "[alibi]", "-alibi]")
"""The schemes whose laws are run whatever was changed, as the ids of tests write them."""
ALWAYS = ("tests/test_architecture.py",)


def main(arguments: Sequence[str]) -> int:
    files = list(arguments) or changed()
    chosen = choose(files)
    os.chdir(ROOT)
    names = list(dict.fromkeys([*chosen, *ALWAYS, *LAWS]))
    print(f"{len(files)} changed files, {len(chosen)} test files beside them")
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *names], plugins=[Quick(chosen)]))


def changed(against: str = "main") -> list[str]:
    """Return the Python files that differ from a branch, in commits or in the working tree, new ones among them."""
    listed = list_changed(against) + git("ls-files", "--others", "--exclude-standard").split()
    return sorted({name for name in listed if name.endswith(".py")})


def choose(files: Sequence[str]) -> dict[str, str]:
    """Return the tests of changed files, mirrored ones first: {test file: what ids must contain, as pytest's -k}."""
    mirrored: dict[str, str] = {}
    importing: list[str] = []
    every = [(path, path.read_text("utf8")) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    for file in files:
        path = Path(file)
        if path.name.startswith("test_"):
            mirrored[file] = ""
        elif path.is_relative_to(PACKAGE):
            # Files, and the expression of ``-k`` after them where there is one.
            tests, _, wanted = " ".join(beside(file)).partition(" -k ")
            mirrored.update(dict.fromkeys(tests.split(), wanted))
            sought = imports(name_module(file))
            importing += [str(test.relative_to(ROOT)) for test, text in every if re.search(sought, text)]
    return {**mirrored, **{test: "" for test in importing if test not in mirrored}}


class Quick:
    """Leaves out what was not chosen, and begins no test when the time is over."""

    def __init__(self, chosen: dict[str, str]) -> None:
        self.chosen, self.begun, self.left_out = chosen, time.monotonic(), 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of changed files, those of a sample of schemes among the laws, and the pages' own."""
        items[:] = [item for item in items if self.wanted(item)]

    def wanted(self, item: pytest.Item) -> bool:
        """Whether a test is one of those that run."""
        file = item.nodeid.split("::")[0]
        if file in ALWAYS or (file in self.chosen and not self.chosen[file]):
            return True
        words = self.chosen.get(file, "").split(" or ") if file in self.chosen else []
        return any(word in item.nodeid for word in (*words, *(SAMPLE if file in LAWS else ())))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test for which there is no time any more."""
        if time.monotonic() - self.begun > SECONDS:
            self.left_out += 1
            pytest.skip(f"{SECONDS} seconds are over")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was not run."""
        if self.left_out:
            said = f"{self.left_out} tests did not begin within {SECONDS} seconds; `make test` runs all"
            terminalreporter.write_line(said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
