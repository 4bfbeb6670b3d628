"""The tests mirror the tree, and every import leads to a module.

tests/a/test_b.py is about src/clockhands/a/b.py or about the package src/clockhands/a/b.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TESTS = ROOT / "src" / "clockhands", ROOT / "tests"

LAWS = "a law or a comparison with peers that many modules have to pass together"
WHOLE = "what a person does, from the command to the result, through many modules"
REPOSITORY = "about files of the repository, not about a module"
ELSEWHERE = {
    LAWS: (
        "attention/test_kernels.py attention/test_score_mod.py inspection/test_by_hand.py "
        "model/test_laws.py "
        "model/test_peers.py schemes/test_composition_axes.py schemes/test_examples.py schemes/test_laws.py "
        "schemes/test_parity_absolute.py "
        "schemes/test_parity_rotary.py inspection/test_every_family.py inspection/test_planted.py "
        "inspection/test_schemes.py checking/checks/test_planted.py "
        "checking/checks/test_planted_transformers.py checking/scratch/test_faults.py "
        "checking/scratch/test_planted.py checking/scratch/test_ports.py checking/fitting/test_mirrors.py "
        "checking/test_own_models.py checking/test_regressions.py "
        "explanation/test_threads.py explanation/test_in_llama_cpp.py explanation/test_in_vllm.py "
        "explanation/test_in_transformers4.py explanation/test_published.py"
    ),
    WHOLE: (
        "cli/test_main.py cli/test_mutations.py cli/test_use.py data/test_imports.py exploring/test_browser.py "
        "inspection/test_hostile_text.py "
        "inspection/test_minilm.py inspection/test_sides.py "
        "report/figures/test_contrast.py report/test_browser.py "
        "test_commands.py test_core.py training/test_killed.py training/test_once.py "
        "training/test_processes.py"
    ),
    REPOSITORY: (
        "answers/test_answers.py answers/test_models.py checking/test_defects.py "
        "checking/test_schema.py "
        "report/test_catalogue_page.py report/test_matrix_page.py exploring/test_vectors.py extension/test_regret.py "
        "studies/test_studies.py test_architecture.py "
        "test_gpu_benchmark.py test_hops.py test_house.py test_mutants.py test_packaging.py test_traps.py test_tree.py "
        "test_tutorials.py test_words.py"
    ),
}
"""Why tests mirror no module, and which. A name that is not needed here any more fails."""


def mirrored(test: Path) -> bool:
    """Whether a test has a module or a package at its mirrored path, in the package or among the tools of the pages."""
    place = test.relative_to(TESTS).parent / test.stem.removeprefix("test_")
    paths = (SOURCE / place, ROOT / "docs" / "tools" / place)
    return any(path.is_dir() or path.with_suffix(".py").is_file() for path in paths)


def test_every_test_mirrors_a_module_or_says_why_not() -> None:
    lone = {str(test.relative_to(TESTS)) for test in TESTS.rglob("test_*.py") if not mirrored(test)}
    named = {name for names in ELSEWHERE.values() for name in names.split()}
    assert sorted(lone - named) == [], "no module or package at the mirrored path"
    assert sorted(named - lone) == [], "mirrored or gone: take the name out of ELSEWHERE"


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
