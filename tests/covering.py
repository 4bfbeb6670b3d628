"""Choose the tests that can notice a change of a module: those beside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/clockhands")


def beside(path: str, root: Path = ROOT) -> list[str]:
    """Return the arguments of pytest for the tests beside a module.

    The test at the mirrored path; the oracle and laws of the schemes that the module defines; otherwise the tests of
    its package that import the module; otherwise all of the mirrored folder, or of the nearest above it.
    """
    module = Path(path).relative_to(PACKAGE)
    folder = Path("tests") / module.parent
    is_package = module.stem == "__init__"
    mirrored = folder.parent / f"test_{folder.name}.py" if is_package else folder / f"test_{module.stem}.py"
    chosen = [str(mirrored)] if (root / mirrored).is_file() else []
    if module.parts[0] == "schemes" and (names := schemes_of(root / path)):
        chosen += [f"tests/schemes/{file}.py" for file in ("test_laws", "test_scheme")]
        # The ids of the laws are "scheme(options)-side", after the values of other parameters; others are of the file.
        chosen += ["-k", " or ".join([f"{before}{name}" for name in names for before in "[-"] + [mirrored.stem])]
    if chosen:
        return chosen
    every = sorted((root / "tests" / module.parts[0]).rglob("test_*.py")) + sorted((root / "tests").glob("test_*.py"))
    named = [file for file in every if file.name == f"test_{module.parts[0]}.py"]
    importing = [file for file in every if re.search(imports(name_module(path)), file.read_text("utf8"))]
    near = [sorted((root / parent).glob("test_*.py")) for parent in (folder, *folder.parents[:-1])]
    return [str(file.relative_to(root)) for file in importing or named or next(filter(None, near), [])]


def name_module(path: str) -> str:
    """Return the name by which a module of the package is imported."""
    parts = Path(path).relative_to(PACKAGE).with_suffix("").parts
    return ".".join(("clockhands", *parts)).removesuffix(".__init__")


def imports(module: str) -> str:
    """Return an expression for what imports a module or something from it."""
    package, _, name = module.rpartition(".")
    return rf"\b{re.escape(module)}\b|from {re.escape(package)} import .*\b{re.escape(name)}\b"


def schemes_of(path: Path) -> list[str]:
    """Return the catalogue's names of the classes that a file defines, read without importing it."""
    defined = set(re.findall(r"^class (\w+)", path.read_text("utf8"), flags=re.MULTILINE))
    text = (ROOT / PACKAGE / "schemes" / "__init__.py").read_text("utf8")
    return [name for name, kind in re.findall(r'"([\w-]+)": (\w+),', text) if kind in defined]


def git(*words: str) -> str:
    """Return what git answers in this repository."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def list_changed(against: str) -> list[str]:
    """Return the files that differ from a branch, in commits or in the working tree; new ones where git knows them."""
    base = git("merge-base", "HEAD", against).strip()
    return git("diff", "--name-only", "--diff-filter=AMR", base).split()
