"""The mutation score of ``check``: ``python -m tests.checking.scratch.score`` measures it and writes its page."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterable, Sized
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from clockhands.checking.result import versions
from tests.checking.scratch.faults import FAULTS, SCHEMES, SOURCE, VARIANTS, Fault, build, failures
from tests.conformance.scripts import sweeping

PAGE = Path(__file__).resolve().parents[3] / "docs/conformance/mutation-score.md"
NAMES = {"learned": "a learned table", "rope": "RoPE", "alibi": "ALiBi", "t5": "encoder-decoder with T5's bias"}


def tell_measured() -> str:
    """Return the day and the versions, with that of the code that decides a verdict."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    made_with = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"Measured on {today}: {made_with}, version {sweeping.identify_code()} of the checks."


def cases(changes: Iterable[Fault]) -> list[tuple[str, Fault]]:
    """Return every change with every scheme that it is for."""
    return [(scheme, change) for change in changes for scheme in change.schemes]


def run(case: tuple[str, Fault]) -> set[str]:
    """Return checks that fail on a model with that change, at its initial weights: all where none was written for it.

    Each check begins with an untouched model: those written for the mechanism say alone what they say among all.
    """
    torch.set_num_threads(1)
    scheme, change = case
    adapters, written = build(scheme, change.apply(SOURCE)), change.named_by.split()
    return (failures(adapters, written) if written else set()) or failures(adapters)


def is_named(fault: Fault, failing: set[str]) -> bool:
    """Whether one of the checks that were written for the mechanism is among those that fail."""
    return bool(failing & set(fault.named_by.split()))


def _share(count: int, of: Sized) -> str:
    """A whole percentage, rounded down, so that 100 % means all of them."""
    return f"{100 * count // max(len(of), 1)}%"


def write_page(faults: dict[tuple[str, Fault], set[str]], correct: dict[tuple[str, Fault], set[str]]) -> str:
    """Return the page: the score of each scheme, what was missed, and what was called a fault and is none."""
    lines = ["| model | faults | caught | mechanism named |", "|---|---|---|---|"]
    for scheme in (*SCHEMES, "all"):
        own = {case: failing for case, failing in faults.items() if scheme in (case[0], "all")}
        caught = sum(bool(failing) for failing in own.values())
        named = sum(is_named(case[1], failing) for case, failing in own.items())
        shares = f"{caught} ({_share(caught, own)}) | {named} ({_share(named, own)})"
        lines.append(f"| {NAMES.get(scheme, 'all')} | {len(own)} | {shares} |")
    missed = [f"- {NAMES[scheme]}: {fault.name}" for (scheme, fault), failing in faults.items() if not failing]
    unnamed = [
        f"- {NAMES[scheme]}: {fault.name} ({', '.join(sorted(failing))})"
        for (scheme, fault), failing in faults.items()
        if failing and not is_named(fault, failing)
    ]
    alarms = [f"- {NAMES[s]}, {v.name}: {', '.join(sorted(failing))}" for (s, v), failing in correct.items() if failing]
    return TEXT.format(
        measured=tell_measured(),
        table="\n".join(lines),
        correct=len(correct),
        alarms=len(alarms),
        false="\n".join(alarms) or "None.",
        missed="\n".join(missed) or "None.",
        unnamed="\n".join(unnamed) or "None.",
        variants=", ".join(variant.name for variant in VARIANTS),
    )


TEXT = """# The mutation score

How many mistakes does `clockhands check` find in a Transformer that somebody wrote from scratch? Four of them stand in
`tests/checking/scratch/model.py`, at the usual initial weights (normal, 0.02); `faults.py` beside it plants one mistake
at a time. This page is written by `python -m tests.checking.scratch.score`; the suite tries a sample on every change.
{measured}

{table}

*Caught*: a check fails. *Mechanism named*: among the checks that fail is one that was written for this mechanism, so
that its sentence says what is wrong. Under some mistakes a model stays consistent with itself (another base, all angles
with the other sign). They are not among these: no law sees them, and `--against` a reference
does: [how many it explains](port-mistakes.md). A crash on valid
input counts as caught. The faults were written by those who know the checks: for mistakes that nobody thought of
yet the score is a bound from above.

**Correct models.** {correct} variants ({variants}): {alarms} with a false failure.

{false}

## Missed

{missed}

## Caught, and not named

{unnamed}
"""


def main() -> None:
    """Try every fault and every correct variant, and write the page."""
    planted, right = cases(FAULTS), cases(VARIANTS)
    failing = []
    with ProcessPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        for (scheme, change), checks in zip([*planted, *right], pool.map(run, [*planted, *right]), strict=True):
            print(f"{scheme}: {change.name}: {', '.join(sorted(checks)) or 'passes'}", file=sys.stderr, flush=True)
            failing.append(checks)
    faults = dict(zip(planted, failing, strict=False))
    correct = dict(zip(right, failing[len(planted) :], strict=True))
    PAGE.write_text(write_page(faults, correct), encoding="utf8")
    print(PAGE.read_text("utf8"))


if __name__ == "__main__":
    main()
