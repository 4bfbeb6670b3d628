"""The board: the same sweep under several releases of transformers, and what each of them broke and mended."""

from __future__ import annotations

import re
import site
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clockhands.checking.matrix import list_causes
from clockhands.checking.result import Result
from clockhands.checking.sweep import read_kept
from clockhands.checking.verdict.outcome import Outcome
from clockhands.errors import CheckpointError, UsageError
from clockhands.files import write_text

_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_BAD = ("FAIL", "LIBRARY")
Progress = Callable[[str], None]


def find_releases(wanted: str) -> list[str]:
    """Return releases of transformers, the oldest first: those named (``5.22.2,5.23.0``), or the last so many minors.

    How many there are is asked of the package index, by pip. Raises UsageError for anything else.
    """
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if names and all(_RELEASE.fullmatch(name) for name in names):
        return sorted(set(names), key=_number)
    if not wanted.isdigit() or int(wanted) < 1:
        raise UsageError(
            f"--releases {wanted} is neither a number of minor releases nor versions such as 5.22.2,5.23.0"
        )
    listed = _run([sys.executable, "-m", "pip", "index", "versions", "transformers"], "asking for releases").stdout
    every = [name.strip() for name in _after_colon(listed) if _RELEASE.fullmatch(name.strip())]
    return choose_minors(every, int(wanted))


def choose_minors(releases: Iterable[str], count: int) -> list[str]:
    """Return the newest release of each of the last ``count`` minor ones."""
    newest = {_number(release)[:2]: release for release in sorted(releases, key=_number)}
    return [newest[minor] for minor in sorted(newest)][-count:]


def _after_colon(listed: str) -> list[str]:
    line = next((line for line in listed.splitlines() if line.startswith("Available versions:")), "")
    return line.partition(":")[2].split(",")


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def make_environment(folder: Path, release: str, progress: Progress | None = None) -> Path:
    """Return the Python of an environment with this release over the packages that run now; made if it is not there.

    Only what the release asks for in another version is installed beside it. Raises CheckpointError if pip fails.
    """
    root = folder / "environments" / release
    python = root / "bin" / "python"
    if (root / "complete").exists():
        _share_packages(root)
        return python
    if progress is not None:
        progress(f"making an environment for transformers {release}")
    doing = f"making the environment of transformers {release}"
    _run([sys.executable, "-m", "venv", "--clear", str(root)], doing)
    # Alone first: pip would otherwise see the release that is installed here, which it must not touch.
    _run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", f"transformers=={release}"], doing)
    _share_packages(root)
    _run([str(python), "-m", "pip", "install", "--quiet", f"transformers=={release}"], doing)
    write_text(root / "complete", release + "\n")
    return python


def _share_packages(root: Path) -> None:
    """Let an environment find what runs now; an environment that is kept may have been made from other folders."""
    places = [path for path in sys.path if path and (path.endswith("-packages") or path in _source_folders())]
    (packages,) = root.glob("lib/python*/site-packages")
    write_text(packages / "zz_running_packages.pth", "\n".join(places) + "\n")


def _source_folders() -> set[str]:
    """Return where clockhands is imported from if it is installed as a source tree."""
    return {str(Path(__file__).parents[2])} - set(site.getsitepackages())


def sweep_release(
    folder: Path, release: str, builds: Sequence[str], options: Sequence[str], progress: Progress | None = None
) -> list[Result]:
    """Sweep under one release, in a process of its environment, and return its results; what was done is kept."""
    python = make_environment(folder, release, progress)
    if progress is not None:
        progress(f"sweeping under transformers {release}")
    listing = "from clockhands.checking.sweep import list_builds; print(*list_builds())"
    has = set(_run([str(python), "-c", listing], f"asking transformers {release} for its architectures").stdout.split())
    known = [build for build in builds if build in has]
    if builds and not known:
        raise CheckpointError(f"transformers {release} has none of {', '.join(builds)}")
    command = [str(python), "-m", "clockhands", "check", "--all", str(folder / release), *options]
    command += ["--builds", ",".join(known)] if builds else []
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):  # 1: something failed, which is what the board is about
        raise CheckpointError(f"the sweep under transformers {release} ended with code {done.returncode}: {command}")
    results = read_kept(folder / release)
    return [result for result in results if not builds or result.model in builds]


def _run(command: Sequence[str], doing: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = " ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
        raise CheckpointError(f"{doing} failed with code {done.returncode}: {last}")
    return done


def compare_releases(swept: Mapping[str, Sequence[Result]], whole: bool) -> dict[str, Any]:
    """Return plain data: by release the counts, what changed against the release before, and the causes of failures.

    ``whole``: whether all architectures were swept, or a sample. A build that a release does not know yet is no fault
    of it; one that the release before could make is ``lost``. For the lists of changes see ``_compare``.
    """
    models = list(dict.fromkeys(result.model for results in swept.values() for result in results))
    entries: list[dict[str, Any]] = []
    before: dict[str, dict[str, Outcome]] | None = None
    for release, results in swept.items():
        now = {result.model: _by_check(result) for result in results if not result.fault}
        verdicts = [outcome.verdict for outcomes in now.values() for outcome in outcomes.values()]
        entries.append(
            {
                "release": release,
                "builds": len(now),
                "absent": [model for model in models if model not in now],
                "lost": [model for model in before or {} if model not in now],
                "own": verdicts.count("FAIL"),
                "library": verdicts.count("LIBRARY"),
                **_compare(now if before is None else before, now),
                "causes": list_causes(results),
                "versions": dict(next((result.versions for result in results if result.versions), {})),
                "codes": dict(Counter(result.versions.get("code", "") for result in results if not result.fault)),
            }
        )
        before = now
    return {"schema": 2, "whole": whole, "models": models, "releases": entries}


def _by_check(result: Result) -> dict[str, Outcome]:
    return {outcome.check: outcome for outcome in result.outcomes}


def _compare(
    before: Mapping[str, Mapping[str, Outcome]], now: Mapping[str, Mapping[str, Outcome]]
) -> dict[str, list[list[str]]]:
    """Return the checks that fail under one of two releases alone, of builds that both know, by what that means.

    ``broke`` and ``mended``: they apply under both. ``began_failing`` did not apply before, and ``ended_failing`` does
    not apply now: nothing is known of the release in which they do not apply, so they are neither. Each is a list of
    [model, check, verdict before, verdict now, cause of the failure, why it does not apply, or nothing].
    """
    changes: dict[str, list[list[str]]] = {"broke": [], "mended": [], "began_failing": [], "ended_failing": []}
    for model, outcomes in now.items():
        for check, new in outcomes.items():
            old = before.get(model, {}).get(check)
            if old is None or (old.verdict in _BAD) == (new.verdict in _BAD):
                continue
            fails = new.verdict in _BAD
            bad, other = (new, old) if fails else (old, new)
            applies = other.verdict != "N/A"
            name = ("broke" if fails else "mended") if applies else ("began_failing" if fails else "ended_failing")
            why = "" if applies else other.reason or other.note
            cause = bad.cause or bad.reason or bad.note
            changes[name].append([model, check, old.verdict, new.verdict, cause, why])
    return changes
