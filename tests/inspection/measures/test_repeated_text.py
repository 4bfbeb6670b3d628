"""Texts that repeat each other are reported, and running text is not."""

from __future__ import annotations

import pytest
import torch

from clockhands.findings import Finding
from clockhands.inspection.measures.repeated_text import RepeatedText
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject

from .. import planted
from ..reading.test_capture import draw_text


def _repeated(ids_NT: torch.Tensor) -> Finding:
    recorded = Capture(ids_NT, [], [], torch.ones(ids_NT.shape[1], dtype=torch.bool))
    return RepeatedText().run(Reading(Subject.of(planted.uniform()), recorded))


@pytest.mark.parametrize(
    ("count", "told"), [(1, "1 of 24 windows (4.2 %) repeats"), (2, "2 of 24 windows (8.3 %) repeat"),
                        (12, "12 of 24 windows (50 %) repeat")],
)  # fmt: skip
def test_repeats_are_reported_with_a_warning(count: int, told: str) -> None:
    """From one window in twenty on."""
    ids = draw_text()
    ids[12 : 12 + count] = ids[:count]
    found = _repeated(ids)
    assert found.value == pytest.approx(count / 24)
    assert found.verdict.startswith(f"{told} an earlier one")
    assert found.light == ("good" if count == 1 else "warn")


@pytest.mark.parametrize("permuted", [False, True])
def test_tokens_that_a_template_fixes_are_reported(permuted: bool) -> None:
    """Every second token is the same in all texts, at its position; permuted within the texts, it is at none."""
    ids = draw_text()
    ids[:, ::2] = torch.arange(20) + 300
    if permuted:
        ids = ids.gather(1, torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)).argsort(1))
    found = _repeated(ids)
    assert ("of the tokens are fixed by their position" in found.verdict) == (found.light == "warn") == (not permuted)
    assert found.details["fixed by the place"] == pytest.approx(0.0 if permuted else 0.5, abs=0.03)


def test_running_text_repeats_nothing_and_does_not_warn() -> None:
    found = _repeated(draw_text())
    assert (found.value, found.light) == (0.0, "good")
    assert found.verdict == "None of the 24 windows repeats an earlier one."


@pytest.mark.parametrize("different", [0, 1])
def test_probes_are_judged_on_repeats_where_all_windows_repeat_each_other(different: int) -> None:
    ids = draw_text()[:1].repeat(24, 1)
    ids[24 - different :] = draw_text(1, seed=1)
    verdict = _repeated(ids).verdict
    assert ("on windows that repeat those they were fitted on, since all windows repeat" in verdict) == (not different)
    assert ("on windows that do not repeat those they were fitted on." in verdict) == bool(different)


@pytest.mark.parametrize(("length", "run"), [(4, 4), (8, 5)])
def test_runs_are_no_longer_than_the_windows(length: int, run: int) -> None:
    ids = draw_text(length=length)
    ids[12:] = ids[:12]
    verdict = _repeated(ids).verdict
    assert f"at least half of the runs of {run} tokens occur there too" in verdict


@pytest.mark.parametrize(
    ("alike", "windows", "told"),
    [
        (40, 40, "since all windows repeat each other."),
        (48, 60, "since the first 48, which they read, repeat each other."),
        (47, 60, "probes are judged on windows that do not repeat those they were fitted on."),
    ],
)
def test_why_probes_are_judged_on_repeats_is_said_of_the_windows_that_they_read(
    alike: int, windows: int, told: str
) -> None:
    ids = draw_text(windows)
    ids[:alike] = ids[0]
    assert told in _repeated(ids).verdict
