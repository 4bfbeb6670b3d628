"""ARCHITECTURE.md names what is there: paths, names beside them, and the floors of the import linter."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Collection
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf8")
PATHS = sorted(set(re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", PAGE)))
NAMED = re.findall(r"`(src/[\w/]+\.py)`: `(\w+)(?:\.(\w+))?`", PAGE)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_there(path: str) -> None:
    assert (ROOT / path).is_file(), f"ARCHITECTURE.md names {path}"


@pytest.mark.parametrize(("path", "name", "member"), NAMED, ids=lambda part: str(part))
def test_every_name_is_defined_where_the_page_says(path: str, name: str, member: str) -> None:
    text = (ROOT / path).read_text("utf8")
    for wanted in filter(None, (name, member)):
        assert re.search(rf"^\s*(?:def|class) {wanted}\b", text, re.MULTILINE), f"{path} defines no {wanted}"


def test_the_floors_are_those_of_the_import_linter() -> None:
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["tool"]["importlinter"]["contracts"]
    enforced = [set(layer.split(" | ")) for layer in contract["layers"]]
    block = PAGE.split("```")[1]
    drawn = [set(re.split(r"\s{2,}", line)[0].split(" | ")) for line in block.strip().splitlines()]
    assert drawn[:-1] == enforced[:-1]
    assert drawn[-1] <= enforced[-1]


def test_the_walks_are_short() -> None:
    walks = re.split(r"^\*\*", PAGE.split("## Three walks")[1].split("## Rules")[0], flags=re.MULTILINE)[1:]
    rooms = [len(re.findall(r"^\d+\. ", walk, re.MULTILINE)) for walk in walks]
    assert rooms[0] <= 12
    assert rooms[1] <= 10
    assert len(rooms) == 3


CHANGED = {
    "attention/positioning.py": 1,
    "inspection/reading/layer.py": 1,
    "inspection/reading/reading.py": 1,
    "inspection/reading/capture.py": 1,
    "models/subject.py": 1,
    "models/clockhands_subject.py": 1,
    "checking/models/subject.py": 1,
    "checking/fitting/calls.py": 1,
    "checking/runtimes/llama_cpp.py": 1,
    "checking/runtimes/onnx.py": 1,
    "report/figures/mark_kind.py": 1,
}
"""How many dataclasses of a file are filled in or go on while something runs. All others are values."""


def test_values_are_frozen() -> None:
    """A value is passed on and kept: nobody may change it for those who have it too."""
    source = ROOT / "src" / "clockhands"
    thawed: Counter[str] = Counter()
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
            if any(mark.startswith("dataclass") and "frozen=True" not in mark for mark in marks):
                thawed[str(path.relative_to(source))] += 1
    assert thawed == CHANGED


def read_imports(path: Path, modules: Collection[str]) -> set[str]:
    """Return our modules that a file imports, wherever the import stands: late and for annotations too."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            imported |= {name if name in modules else node.module for name in names}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    return imported & set(modules)


def test_no_import_leads_back() -> None:
    """Not inside a package either: what two modules need of each other belongs into a third."""
    source = ROOT / "src"
    names = {".".join(path.relative_to(source).with_suffix("").parts): path for path in source.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {name: read_imports(path, modules) for name, path in modules.items()}
    TopologicalSorter(graph).prepare()
