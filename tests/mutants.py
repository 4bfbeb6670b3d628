"""Change the code in one place at a time, and list the changes that no test notices.

    python tests/mutants.py                                  # the files that differ from main
    python tests/mutants.py src/clockhands/schemes/bias/fire.py
    python tests/mutants.py --sample 300 --seed 0            # places drawn from all packages

A mutant is tried by the tests beside its module (`tests/covering.py` says which), which have at most 40 seconds of
processor time: a survivor is one that no test noticed within it.

cosmic-ray finds the places and makes the changes; the results are kept in a file, so that a run that was stopped goes
on where it was. Every mutant is tested in a copy of the tree, by a fork of a process that has imported torch and
transformers already. In the end the tests that noticed something run once without a change: what those noticed that
fail then too does not count. Needs the extra ``mutants``.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import pytest  # noqa: E402

from tests.covering import PACKAGE, ROOT, beside, git, list_changed  # noqa: E402

SESSIONS = ROOT / ".mutants"
HEAVY = (
    "torch", "torch._dynamo", "transformers", "transformers.models.llama.modeling_llama", "scipy.stats", "hypothesis",
    "datasets", "pandas",
)  # fmt: skip
MEMORY, SECONDS = 16 << 30, 40
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


@dataclass(frozen=True)
class Result:
    """What became of a mutant: "killed", "survived" or "no tests"; the change as a diff; the test that noticed it."""

    told: str
    shown: str
    test: str = ""


class Clock:
    """A plugin of pytest: begin no test when their time is over, and keep which test began last.

    ``seconds``: of processor time. ``record``: the file that holds the id of the last test.
    """

    def __init__(self, seconds: float, record: Path) -> None:
        self.seconds, self.record, self.over = seconds, record, False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.record.write_text(nodeid, "utf8")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):  # type: ignore[no-untyped-def]
        result = yield
        if sum(os.times()[:4]) > self.seconds and not item.session.shouldfail:
            self.over = True
            item.session.shouldstop = "the time of the tests is over"
        return result


def modules(paths: Sequence[str]) -> list[str]:
    """Those of some paths that are modules of the package."""
    return sorted(path for path in paths if path.endswith(".py") and Path(path).is_relative_to(PACKAGE))


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


def run_tests(root: Path, arguments: Sequence[str], seconds: float) -> tuple[str, str]:
    """How tests end in a fork of this process: "passed", "no tests" or "failed", and the test that failed.

    ``seconds``: of processor time. What began before they were over may take a minute more, and what does not end
    then has failed.
    """
    record = root.parent / "ran.txt"
    record.unlink(missing_ok=True)
    begun, child = time.monotonic(), os.fork()
    if not child:
        os._exit(run_in_child(root, arguments, Clock(seconds, record)))
    while True:
        done, status, _ = os.wait4(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() - begun > 5 * (seconds + 60):
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.1)
    code = os.waitstatus_to_exitcode(status)
    if code == 4:
        raise SystemExit(f"pytest was called wrongly:\n{(root.parent / 'output.txt').read_text('utf8')[-3000:]}")
    told = {0: "passed", 5: "no tests"}.get(code, "failed")
    return told, record.read_text("utf8") if told == "failed" and record.is_file() else ""


def run_in_child(root: Path, arguments: Sequence[str], clock: Clock) -> int:
    """Run tests until one fails, and return the exit code that pytest gives: 0 where only their time was over."""
    os.setsid()
    limit = int(min(clock.seconds + 60, 1e6))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = os.open(root.parent / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(root)
    # This file was imported as a module of the tests that it changes copies of: those are to be imported.
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    code = int(pytest.main([*ARGUMENTS, *arguments], plugins=[clock]))
    sys.stdout.flush()
    return 0 if clock.over else code


def try_mutant(root: Path, mutant: Mutant, seconds: float) -> Result:
    """Whether the tests notice a change, and which test does."""
    import cosmic_ray.plugins
    from cosmic_ray.mutating import mutate_code

    file = root / mutant.path
    text = file.read_text("utf8")
    changed_text = mutate_code(text, cosmic_ray.plugins.get_operator(mutant.operator)(), mutant.occurrence)
    if changed_text is None:
        raise SystemExit(f"cosmic-ray finds no place for {mutant}; was the file changed meanwhile?")
    tests = beside(mutant.path, root)
    try:
        file.write_text(changed_text, "utf8")
        forget_compiled(file)
        told, test = run_tests(root, tests, seconds)
    finally:
        file.write_text(text, "utf8")
        forget_compiled(file)
    return Result({"passed": "survived", "failed": "killed"}.get(told, told), difference(text, changed_text), test)


def forget_compiled(file: Path) -> None:
    """Remove what Python compiled of a file: a change of equal length within a second would be taken for it."""
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()


def difference(before: str, after: str) -> str:
    """The lines that differ: ``- old`` and ``+ new``."""
    from difflib import unified_diff

    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[3:]
    return " | ".join(" ".join(line.split()) for line in lines)


def go_on(session: Path) -> dict[Mutant, Result]:
    """Try the mutants that a session has no result for, and return all results."""
    chosen, results = read_session(session)
    with session.open("a", encoding="utf8") as stream, copy_of_tree() as root:
        import_what_is_heavy(root)
        for number, one in enumerate(chosen):
            if number in results:
                continue
            result = results[number] = try_mutant(root, one, SECONDS)
            print(json.dumps([number, *astuple(result)]), file=stream, flush=True)
            print(f"{len(results):>5}/{len(chosen)} {result.told:<9} {one}  {result.shown}  {result.test}", flush=True)
        noticing = {result.test for result in results.values()} - {""}
        unsure = {test for test in noticing if run_tests(root, [test], 1e5)[0] == "failed"}
    return {
        chosen[number]: replace(result, told="unsure") if result.test in unsure else result
        for number, result in sorted(results.items())
    }


def begin(session: Path, chosen: Sequence[Mutant]) -> None:
    """Write down which mutants a session is to try, in their order; each result becomes a line below."""
    session.parent.mkdir(exist_ok=True)
    session.write_text(json.dumps([astuple(one) for one in chosen]) + "\n", "utf8")


def read_session(session: Path) -> tuple[list[Mutant], dict[int, Result]]:
    """The mutants of a session, in their order, and the last result of each by its number; nothing of a new one."""
    if not session.is_file():
        return [], {}
    chosen, *results = map(json.loads, session.read_text("utf8").splitlines())
    mutants = [Mutant(*places, tuple(start), tuple(end)) for *places, start, end in chosen]
    return mutants, {number: Result(*fields) for number, *fields in results}


def import_what_is_heavy(root: Path) -> None:
    """Import in this process what its forks need and no mutant changes, with the copy's package on the path."""
    sys.path[:0] = [str(root), str(root / "src")]
    os.environ.update(PYTHONPATH=str(root / "src"), HF_HUB_OFFLINE="1")
    for name in HEAVY:
        importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)


def report(results: dict[Mutant, Result], chosen: int) -> str:
    """How many were killed, with the interval, and those that were not."""
    from scipy.stats import binomtest

    alive = {mutant: result for mutant, result in results.items() if result.told != "killed"}
    killed, tested = len(results) - len(alive), len(results)
    if not tested:
        return "no mutant was tested"
    low, high = binomtest(killed, tested).proportion_ci(method="wilson")
    lines = [f"{killed} of {tested} mutants killed: {killed / tested:.1%} [{low:.1%}, {high:.1%}] (95 %, Wilson)"]
    lines += [f"{chosen - tested} of {chosen} were not tested; run the same command again"] if tested < chosen else []
    lines += [f"  {one.told}: {mutant}  {one.shown}  {one.test}".rstrip() for mutant, one in alive.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="modules to change (default: those that differ from --against)")
    parser.add_argument("--against", default="main", help="the branch (default: main)")
    parser.add_argument("--sample", type=int, help="so many places drawn from the files, or from all packages")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    given = parser.parse_args()
    everything = modules(git("ls-files", str(PACKAGE)).split())
    files = given.files or (everything if given.sample else modules(list_changed(given.against)))
    if strange := sorted(set(files) - {*everything, *list_changed(given.against)}):
        parser.error(f"no modules of the package: {', '.join(strange)}")
    texts = "".join((ROOT / path).read_text("utf8") for path in files)
    plan = hashlib.sha256(repr((files, given.sample, given.seed, texts)).encode()).hexdigest()[:12]
    session = SESSIONS / f"{plan}.jsonl"
    chosen, _ = read_session(session)
    if not chosen:
        found = [mutant for path in files for mutant in mutants(path)]
        chosen = draw(found, given.sample, given.seed) if given.sample else found
        begin(session, chosen)
    print(f"{len(chosen)} mutants in {len(files)} files", flush=True)
    results = go_on(session) if chosen else {}
    print(report(results, len(chosen)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
