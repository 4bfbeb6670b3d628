"""Whatever is written into a recipe, a command or a configuration: it works, or ends in one message.

Each mutation runs in a child with 2 GB of memory and 40 seconds of the processor: what damaged results lack is trained
again. What was found so has its own tests.
``pytest tests/cli/test_mutations.py --slow``, and others with ``--hypothesis-seed=7``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cli.forks import SECONDS, Forks
from tests.cli.mutations import Case, cases

MANY = 2000
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
DATA = (["translate"], ["generate"])
"""What they write is text, and goes into a file as it is."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations")


@pytest.fixture(scope="module")
def forks(place: Path) -> Iterator[Forks]:
    started = Forks(place)
    yield started
    started.close()


def fault(case: Case, done: dict[str, Any]) -> str | None:
    """What is wrong with the end of a command; None if it worked or ended in one message with the right code."""
    code, err = done["code"], done["err"]
    said = [
        line
        for line in err.split("\n")
        if line.startswith("clockhands: ") and not line.startswith("clockhands: warning:")
    ]
    if "Traceback" in err or code == 99:
        return f"a traceback: {err[-1500:]}"
    if done["seconds"] > SECONDS:
        return f"{done['seconds']:.1f} seconds of the processor"
    if code not in (0, 1, 2):
        return f"exit code {code}: {err[-500:]}"
    # `check` ends with 1 where a check fails, `explain` where two files differ: that is on standard output.
    told = code == 1 and not said and case.arguments[:1] in (["check"], ["explain"]) and done["out"]
    if code and len(said) != 1 and not told:
        return f"exit code {code} with {len(said)} messages: {err[-500:]}"
    if code and max(map(len, err.split("\n"))) > 2000:
        return f"a message of {len(err)} characters: {err[:300]}"
    raw = [text for text in (err, done["out"] if case.arguments[:1] not in DATA else "") if STEERS.search(text)]
    if raw:
        return f"control characters reach the terminal: {STEERS.findall(raw[0])[:5]}"
    if code == 2 and done["made"]:
        return f"refused, and left {done['made']}"
    return None


def tried(forks: Forks, case: Case) -> None:
    done = forks.run(case.arguments, case.files, case.copies)
    found = fault(case, done)
    assert found is None, f"{case}\n{found}"


QUIET = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck), "phases": [Phase.generate]}


@pytest.mark.slow
@settings(max_examples=MANY, **QUIET)
@given(data=st.data())
def test_mutations_work_or_end_in_one_message(forks: Forks, place: Path, data: st.DataObject) -> None:
    tried(forks, data.draw(cases(place)))
