"""One name for one idea: words that have a better one here are not used, in names, in messages or on pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "clockhands"

NAMES: list[tuple[str, str, dict[str, str]]] = [
    ("sight visible", "mask", {}),
    (
        "turn turned turning bent bend bending",
        "rotate",
        {
            "checking/checks/causality.py": "a text turned round",
            "checking/checks/caching.py": "a turn of a dialogue",
            "schemes/content/carope.py": "the name of a parameter in checkpoints",
        },
    ),
    ("memories remembered", "KV cache", {}),
    ("nought", "zero", {}),
    ("tick tell", "progress", {}),
]  # fmt: skip
"""(words that are not used in the names of functions, classes, arguments, variables; the word for it; where they still
are, and why)"""

EMPTY = ("one", "found", "each", "given", "asked", "told")
IN_FILES = {("data/corpora/stdlib.py", "asked"): "an option of recipes: the share of names that are asked about"}
"""Names of variables that say nothing, and those of them that stand in files that people have, with what they mean."""

PHRASES = {
    "no difference shown": "no significant difference",
    "one thing too many": "unexpected argument",
    "nought": "zero",
    "parts with": "differs from",
    "draw anew": "initialise again",
    "is no training run": "is not a training run",
    "is no finished run": "is not a finished run",
    "see it all once": "run the two-minute demo",
    "go on after a stop": "resume a stopped run",
    "gives nothing at the token embedding": "acts in attention",
    "say what no transform reads": "is set but transform is not",
    "cannot be kept": "become stale",
}


def defined(path: Path) -> Iterator[tuple[str, int]]:
    """Every name that a file gives to something: functions, classes, arguments, variables, attributes."""
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


@cache
def every_name() -> list[tuple[str, str, int]]:
    """What all files define, read once and not before a test asks: every process of a test run collects this file."""
    paths = SOURCE.rglob("*.py")
    return [(path.relative_to(SOURCE).as_posix(), name, line) for path in paths for name, line in defined(path)]


@pytest.mark.parametrize(("words", "wanted", "allowed"), NAMES, ids=[wanted for _, wanted, _ in NAMES])
def test_no_name_uses_a_word_that_has_a_better_one(words: str, wanted: str, allowed: dict[str, str]) -> None:
    found = [
        f"{path}:{line} {name}"
        for path, name, line in every_name()
        if set(words.split()) & {part.lower() for part in re.findall(r"[A-Z]?[a-z]+", name)}
        and not any(path.startswith(place) for place in allowed)
    ]
    assert found == [], f"the word here is {wanted}"


def test_variables_say_what_they_hold() -> None:
    empty = {(path, name) for path, name, _ in every_name() if name in EMPTY}
    assert empty == IN_FILES.keys(), f"names that say nothing: {', '.join(EMPTY)}"


@cache
def texts() -> dict[str, str]:
    """What a person reads, by where it stands: text in the code, and the pages."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text("utf8")))
        words = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        found[str(path)] = "\n".join(words)
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *SOURCE.rglob("*.toml")):
        found[str(path)] = path.read_text("utf8")
    return found


@pytest.mark.parametrize(("phrase", "wanted"), PHRASES.items(), ids=PHRASES)
def test_no_text_uses_a_phrase_that_has_a_plainer_one(phrase: str, wanted: str) -> None:
    found = [path for path, text in texts().items() if phrase in text]
    assert found == [], f"say {wanted!r}"
