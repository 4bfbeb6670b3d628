"""Texts that repeat each other are noticed, and running text is not taken for such."""

from __future__ import annotations

import pytest
import torch

from clockhands.findings import Finding
from clockhands.inspection.measures.repeated_text import RepeatedText, find_warning
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.repeated_texts import fixed_by_place, groups, repeats
from clockhands.inspection.subject.subject import Subject

from .. import planted


def _repeated(recorded: Capture) -> Finding:
    return RepeatedText().run(Reading(Subject.of(planted.uniform()), recorded))


def _random(texts: int = 24, length: int = 40, seed: int = 0) -> torch.Tensor:
    return torch.randint(200, (texts, length), generator=torch.Generator().manual_seed(seed))


def _finding(ids: torch.Tensor) -> object:
    return _repeated(Capture(ids, [], [], torch.ones(ids.shape[1], dtype=torch.bool)))


def test_copies_with_some_changed_tokens_are_one_group() -> None:
    ids = _random()
    ids[5] = ids[2]
    ids[5, ::13] = 199  # four tokens of forty
    ids[9] = ids[2].roll(7)  # the same text, cut at another place
    found = groups(ids)
    assert found[2] == found[5] == found[9]
    assert len(found.unique()) == 22


def test_half_of_a_text_is_the_border() -> None:
    ids = _random(8)
    ids[1, :30] = ids[0, :30]
    ids[3, :12] = ids[2, :12]
    assert groups(ids).tolist() == [0, 0, 2, 3, 4, 5, 6, 7]


def test_the_verdict_tells_of_repeats_and_warns() -> None:
    ids = _random()
    ids[12:] = ids[:12]
    found = _repeated(Capture(ids, [], [], torch.ones(40, dtype=torch.bool)))
    assert found.value == pytest.approx(0.5)
    assert found.verdict.startswith("12 of 24 windows (50 %) repeat an earlier one")
    assert found.light == "warn" and find_warning(found) == found.verdict


def test_running_text_repeats_nothing_and_does_not_warn() -> None:
    found = _repeated(Capture(_random(), [], [], torch.ones(40, dtype=torch.bool)))
    assert (found.value, found.light, find_warning(found)) == (0.0, "good", "")
    assert found.verdict == "None of the 24 windows repeats an earlier one."


def test_a_template_fixes_tokens_by_their_place() -> None:
    """Every second token is the same in all texts, at its place; permuted within the texts, it is at none."""
    ids = _random()
    ids[:, ::2] = torch.arange(20) + 300
    found = repeats(ids)
    assert found.fixed == pytest.approx(0.5, abs=0.03) and found.templated
    order = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)).argsort(1)
    assert not repeats(ids.gather(1, order)).templated
    told = _repeated(Capture(ids, [], [], torch.ones(40, dtype=torch.bool)))
    assert "of the tokens are fixed by their position" in told.verdict and told.light == "warn"


def test_what_is_fixed_is_counted_against_other_places() -> None:
    """One token that is everywhere is fixed by no place; one text many times is fixed whole."""
    assert fixed_by_place(torch.full((6, 10), 3)) == 0.0
    assert fixed_by_place(torch.arange(10).expand(6, -1)) == pytest.approx(1.0)
