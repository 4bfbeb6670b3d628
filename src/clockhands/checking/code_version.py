"""The version of the checks themselves, so that a cell of the matrix tells which code measured it."""

from __future__ import annotations

import ast
import functools
import hashlib
from pathlib import Path

_MEASURE = ("checks", "fitting", "models", "verdict")  # the folders whose code decides a verdict


@functools.cache
def identify_code() -> str:
    """Return eight hexadecimal digits of everything that decides a verdict; comments and docstrings do not count."""
    root = Path(__file__).parent
    files = sorted(
        path for folder in _MEASURE for path in (root / folder).rglob("*") if path.suffix in (".py", ".toml")
    )
    digest = hashlib.sha256()
    for path in files:
        text = path.read_text(encoding="utf8")
        digest.update(f"{path.relative_to(root).as_posix()}\n{_strip(text) if path.suffix == '.py' else text}".encode())
    return digest.hexdigest()[:8]


def _strip(source: str) -> str:
    """Return the statements of a module without its docstrings and comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            node.body[0] = ast.Pass()
    return ast.dump(tree)
