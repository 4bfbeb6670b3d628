"""Measure the size of the house: lines, tokens, files, names, imports and functions of ``src``.

python tests/house.py        # prints the figures that tests/test_house.py holds
"""

from __future__ import annotations

import ast
import io
import statistics
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "clockhands"
SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


@cache
def read_modules() -> dict[str, tuple[str, ast.Module]]:
    """Return the text and the tree of every module, by its dotted name."""
    modules = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        text = path.read_text("utf8")
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = (text, ast.parse(text))
    return modules


def count_code_tokens() -> int:
    """Count Python's tokens without comments, docstrings and line ends."""
    total = 0
    for text, tree in read_modules().values():
        docstrings = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                docstrings.add(node.body[0].lineno)
        tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in SILENT]
        total += sum(not (token.type == tokenize.STRING and token.start[0] in docstrings) for token in tokens)
    return total


def list_functions() -> Iterator[tuple[int, str]]:
    """Yield the lines of every function, its docstring among them, and where it stands."""
    for name, (_, tree) in read_modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{name}.{node.name}"


def count_public_names() -> int:
    """Count functions and classes at the top of modules whose names have no underscore in front."""
    trees = (tree for _, tree in read_modules().values())
    tops = (node for tree in trees for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return sum(not node.name.startswith("_") for node in tops)


@cache
def find_imports() -> dict[str, set[str]]:
    """Return which modules each module imports when it is imported itself, type checking aside."""
    modules = read_modules()
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, (_, tree) in modules.items():
        for node in _walk_outside_functions(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "clockhands":
                full = (f"{node.module}.{alias.name}" for alias in node.names)
                found[name] |= {module if module in modules else node.module for module in full}
            elif isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names if alias.name in modules}
        found[name].discard(name)
    return found


def _walk_outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        checking = isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
        if not checking and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
            yield from _walk_outside_functions(child)


def measure_depth() -> int:
    """Return the modules of the longest chain of imports, not counting packages, which only pass names on."""
    imports = find_imports()
    packages = {name.rpartition(".")[0] for name in imports}

    @cache
    def depth(name: str) -> int:
        return 1 + max(map(depth, imports[name] & imports.keys() - packages), default=0)

    return max(map(depth, imports.keys() - packages))


def count_lone_modules() -> int:
    """Count modules that exactly one other module imports."""
    imports = find_imports()
    importers = {name: sum(name in others for others in imports.values()) for name in imports}
    return sum(count == 1 for count in importers.values())


def list_docs() -> list[Path]:
    """Return the files of ``docs`` that git keeps: what a build or a test writes there does not count."""
    listed = subprocess.run(["git", "ls-files", "-z", "docs"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def measure() -> dict[str, float]:
    """Return every figure by its name."""
    lines = [text.count("\n") for text, _ in read_modules().values()]
    functions = sorted(length for length, _ in list_functions())
    return {
        "lines": sum(lines),
        "tokens of code": count_code_tokens(),
        "files": len(lines),
        "lines of the longest file": max(lines),
        "modules with one importer": count_lone_modules(),
        "public names": count_public_names(),
        "depth of imports": measure_depth(),
        "lines of a function, median": statistics.median(functions),
        "lines of the longest function": functions[-1],
        "lines of tests": sum(path.read_text("utf8").count("\n") for path in (ROOT / "tests").rglob("*.py")),
        "megabytes of docs": round(sum(path.stat().st_size for path in list_docs()) / 1e6, 1),
    }


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{value:>10,}  {name}")
