"""Change the code in one place at a time, and list the changes that the tests beside it do not notice.

    python tests/mutants.py                                  # the files that differ from main
    python tests/mutants.py src/clockhands/schemes/bias/fire.py
    python tests/mutants.py --sample 300 --seed 0            # places drawn from all packages

cosmic-ray finds the places, makes the changes and keeps the results in a session, so that a run that was stopped goes
on where it was. Every mutant is tested in a copy of the tree, by a fork of a process that has imported torch and
transformers already, under a limit of processor time. Needs the extra ``mutants``.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/clockhands")
SESSIONS = ROOT / ".mutants"
HEAVY = ("torch", "torch._dynamo", "transformers", "transformers.models.llama.modeling_llama", "scipy.stats", "pytest")
MEMORY, LEAST_SECONDS, UNKNOWN_SECONDS = 16 << 30, 40, 300
ARGUMENTS = ("-x", "-q", "-p", "no:cacheprovider", "--no-header")


@dataclass(frozen=True, order=True)
class Mutant:
    """One change: the operator of cosmic-ray, and which of the places of a file that it could change."""

    path: str
    operator: str
    occurrence: int
    start: tuple[int, int]
    end: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.path}:{self.start[0]} {self.operator.removeprefix('core/')}"


def changed(against: str) -> list[str]:
    """The modules of the package that differ from a branch, in commits or in the working tree."""
    base = git("merge-base", "HEAD", against).strip()
    return modules(git("diff", "--name-only", "--diff-filter=AM", base).split())


def modules(paths: Sequence[str]) -> list[str]:
    """Those of some paths that are modules of the package."""
    return sorted(path for path in paths if path.endswith(".py") and Path(path).is_relative_to(PACKAGE))


def git(*words: str) -> str:
    """What git answers in this repository."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def mutants(path: str) -> list[Mutant]:
    """All changes that cosmic-ray knows for a file, without those that no test can see (annotations, ``@final``)."""
    from cosmic_ray.commands.init import _all_work_items

    text = (ROOT / path).read_text("utf8")
    unseen, lines = annotations(text), text.splitlines()
    found = []
    for item in _all_work_items([ROOT / path], {}):
        (spec,) = item.mutations
        inside = any(start <= spec.start_pos < end for start, end in unseen)
        if not inside and lines[spec.start_pos[0] - 1].strip() not in ("@final", "@overload"):
            found.append(Mutant(path, spec.operator_name, spec.occurrence, spec.start_pos, spec.end_pos))
    return found


def annotations(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations begin and end: (line, column) pairs. Blocks for type checkers alone are among them."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found += [node.returns] if node.returns else []
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            found += [node.annotation] if node.annotation else []
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.append(node)
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in found]  # type: ignore[attr-defined]


def draw(found: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many places, each as likely as any other, with one of the changes that are possible there."""
    by_place: dict[tuple[Any, ...], list[Mutant]] = {}
    for mutant in sorted(found):
        by_place.setdefault((mutant.path, mutant.start, mutant.end), []).append(mutant)
    stream = random.Random(seed)
    places = stream.sample(sorted(by_place), min(count, len(by_place)))
    return [stream.choice(by_place[place]) for place in places]


def beside(path: str, root: Path = ROOT) -> list[str]:
    """The arguments of pytest for the tests beside a module.

    The test at the mirrored path; the oracle and laws of the schemes that the module defines; otherwise the tests of
    its package that import the module; otherwise all of the mirrored folder, or of the nearest above it.
    """
    module = Path(path).relative_to(PACKAGE)
    folder = Path("tests") / module.parent
    mirrored = folder / f"test_{module.stem}.py"
    if module.stem == "__init__":
        mirrored = folder.parent / f"test_{folder.name}.py"
    chosen = [str(mirrored)] if (root / mirrored).is_file() else []
    if module.parts[0] == "schemes" and (names := schemes_of(root / path)):
        chosen += [f"tests/schemes/{file}.py" for file in ("test_laws", "test_declarations")]
        # The ids of the laws are "scheme(options)-side", after the values of other parameters; others are of the file.
        chosen += ["-k", " or ".join([f"{before}{name}" for name in names for before in "[-"] + [mirrored.stem])]
    if chosen:
        return chosen
    dotted = ".".join(("clockhands", *module.with_suffix("").parts)).removesuffix(".__init__")
    every = sorted((root / "tests" / module.parts[0]).rglob("test_*.py")) + sorted((root / "tests").glob("test_*.py"))
    named = [file for file in every if file.name == f"test_{module.parts[0]}.py"]
    importing = [file for file in every if re.search(imports(dotted), file.read_text("utf8"))]
    near = [sorted((root / parent).glob("test_*.py")) for parent in (folder, *folder.parents[:-1])]
    return [str(file.relative_to(root)) for file in importing or named or next(filter(None, near), [])]


def imports(module: str) -> str:
    """An expression for what imports a module or something from it."""
    package, _, name = module.rpartition(".")
    return rf"\b{re.escape(module)}\b|from {re.escape(package)} import .*\b{re.escape(name)}\b"


def schemes_of(path: Path) -> list[str]:
    """The catalogue's names of the classes that a file defines, read without importing it."""
    defined = set(re.findall(r"^class (\w+)", path.read_text("utf8"), flags=re.MULTILINE))
    text = (ROOT / PACKAGE / "schemes" / "__init__.py").read_text("utf8")
    return [name for name, kind in re.findall(r'"([\w-]+)": (\w+),', text) if kind in defined]


@contextmanager
def copy_of_tree() -> Iterator[Path]:
    """The files of the working tree somewhere else, with the real text beside it where there is any."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder) / "tree"
        for name in git("ls-files", "--cached", "--others", "--exclude-standard").splitlines():
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        shared = ROOT.parent / "shared"
        if shared.is_dir():
            (root.parent / "shared").symlink_to(shared.resolve())
        yield root


def run_tests(root: Path, arguments: Sequence[str], seconds: int) -> tuple[str, float]:
    """How the tests end in a fork of this process ("passed", "failed", "no tests", "out of time"), and after how long.

    ``seconds``: of processor time; by the clock it may take thirty times as long.
    """
    begun, child = time.monotonic(), os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        out = os.open(root.parent / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(root)
        import pytest

        code = int(pytest.main([*ARGUMENTS, *arguments]))
        sys.stdout.flush()
        os._exit(code)
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() - begun > 30 * seconds:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.1)
    code = os.waitstatus_to_exitcode(status)
    told = {0: "passed", 1: "failed", 2: "failed", 3: "failed", 5: "no tests"}.get(code, "out of time")
    return told, usage.ru_utime + usage.ru_stime


def try_mutant(root: Path, mutant: Mutant, limits: dict[tuple[str, ...], int]) -> tuple[str, str]:
    """Whether the tests notice a change: "killed", "survived" or "no tests"; and the change as a diff."""
    import cosmic_ray.plugins
    from cosmic_ray.mutating import mutate_code

    file, arguments = root / mutant.path, tuple(beside(mutant.path, root))
    if arguments and arguments not in limits and not isinstance(limits, defaultdict):
        told, spent = run_tests(root, arguments, 3600)
        if told not in ("passed", "no tests"):
            output = (root.parent / "output.txt").read_text("utf8")
            raise SystemExit(
                f"the tests fail before anything is changed: pytest {' '.join(arguments)}\n{output[-3000:]}"
            )
        limits[arguments] = 0 if told == "no tests" else max(LEAST_SECONDS, int(3 * spent))
    text = file.read_text("utf8")
    changed_text = mutate_code(text, cosmic_ray.plugins.get_operator(mutant.operator)(), mutant.occurrence)
    if changed_text is None:
        raise SystemExit(f"cosmic-ray finds no place for {mutant}; was the file changed meanwhile?")
    shown = difference(text, changed_text)
    if not arguments or not limits[arguments]:
        return "no tests", shown
    try:
        file.write_text(changed_text, "utf8")
        forget_compiled(file)
        told, _ = run_tests(root, arguments, limits[arguments])
    finally:
        file.write_text(text, "utf8")
        forget_compiled(file)
    return {"passed": "survived", "no tests": "survived"}.get(told, "killed"), shown


def forget_compiled(file: Path) -> None:
    """Remove what Python compiled of a file: a change of equal length within a second would be taken for it."""
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()


def difference(before: str, after: str) -> str:
    """The lines that differ: ``- old`` and ``+ new``."""
    from difflib import unified_diff

    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[3:]
    return " | ".join(" ".join(line.split()) for line in lines)


def go_on(
    chosen: Sequence[Mutant], session: Path, minutes: float | None, trust: bool = False
) -> dict[Mutant, tuple[str, str]]:
    """Test the mutants that a session has no result for, and return all results.

    ``trust``: the tests are known to pass without a change, so nobody measures how long they take.
    """
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import MutationSpec, WorkItem, WorkResult

    session.parent.mkdir(exist_ok=True)
    until = time.monotonic() + 60 * (minutes or 1e9)
    limits: dict[tuple[str, ...], int] = defaultdict(lambda: UNKNOWN_SECONDS) if trust else {}
    with use_db(str(session), WorkDB.Mode.create) as db, copy_of_tree() as root:
        if not db.num_work_items:
            for number, one in enumerate(chosen):
                spec = MutationSpec(one.path, one.operator, one.occurrence, one.start, one.end)
                db.add_work_item(WorkItem.single(f"{number:05}", spec))
        results = {int(job): tuple(result.output.split("\n", 1)) for job, result in db.results}
        sys.path[:0] = [str(root), str(root / "src")]
        os.environ.update(PYTHONPATH=str(root / "src"), HF_HUB_OFFLINE="1")
        for name in HEAVY:
            importlib.import_module(name)
        sys.modules["torch"].set_num_threads(1)
        for number, one in enumerate(chosen):
            if number in results or time.monotonic() > until:
                continue
            told, shown = results[number] = try_mutant(root, one, limits)
            outcome = "survived" if told == "no tests" else told
            db.set_result(f"{number:05}", WorkResult("normal", f"{told}\n{shown}", outcome, shown))
            print(f"{len(results):>5}/{len(chosen)} {told:<9} {one}  {shown}", flush=True)
    return {chosen[number]: result for number, result in sorted(results.items())}


def report(results: dict[Mutant, tuple[str, str]], chosen: int) -> str:
    """How many were killed, with the interval, and those that were not."""
    from scipy.stats import binomtest

    alive = {mutant: shown for mutant, (told, shown) in results.items() if told != "killed"}
    killed, tested = len(results) - len(alive), len(results)
    if not tested:
        return "no mutant was tested"
    low, high = binomtest(killed, tested).proportion_ci(method="wilson")
    lines = [f"{killed} of {tested} mutants killed: {killed / tested:.1%} [{low:.1%}, {high:.1%}] (95 %, Wilson)"]
    lines += [f"{chosen - tested} of {chosen} were not tested; run the same command again"] if tested < chosen else []
    lines += [f"  {results[mutant][0]}: {mutant}  {shown}" for mutant, shown in alive.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="modules to change (default: those that differ from --against)")
    parser.add_argument("--against", default="main", help="the branch (default: main)")
    parser.add_argument("--sample", type=int, help="so many places drawn from the files, or from all packages")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without a change first")
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on")
    given = parser.parse_args()
    everything = modules(git("ls-files", str(PACKAGE)).split())
    files = given.files or (everything if given.sample else changed(given.against))
    if strange := sorted(set(files) - {*everything, *changed(given.against)}):
        parser.error(f"no modules of the package: {', '.join(strange)}")
    found = [mutant for path in files for mutant in mutants(path)]
    chosen = draw(found, given.sample, given.seed) if given.sample else found
    print(f"{len(chosen)} of {len(found)} mutants in {len(files)} files")
    texts = "".join((ROOT / path).read_text("utf8") for path in files)
    plan = hashlib.sha256(repr((chosen, texts)).encode()).hexdigest()[:12]
    results = go_on(chosen, SESSIONS / f"{plan}.sqlite", given.minutes, given.trust) if chosen else {}
    print(report(results, len(chosen)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
