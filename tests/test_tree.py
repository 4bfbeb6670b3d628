"""Every import of ours leads to a module."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TESTS = ROOT / "src" / "clockhands", ROOT / "tests"


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Each import of ours in a file, wherever it stands: the module, and the name that is taken from it."""
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("clockhands", "tests"):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "clockhands")


@pytest.mark.parametrize("folder", ["src", "tests", "docs", "benchmarks", "examples"])
def test_every_import_leads_to_a_module(folder: str) -> None:
    """Imports inside functions too, which nothing else looks at before the function is called."""
    found = {module: path for path in (ROOT / folder).rglob("*.py") for module, _ in imports(path)}
    lost = [f"{path.relative_to(ROOT)}: {module}" for module, path in found.items() if not exists(module)]
    assert sorted(lost) == []


def exists(module: str) -> bool:
    """Whether a module of ours can be found, without importing anything."""
    first, *rest = module.split(".")
    path = (SOURCE if first == "clockhands" else TESTS).joinpath(*rest)
    return path.is_dir() or path.with_suffix(".py").is_file() or importlib.util.find_spec(first) is None
