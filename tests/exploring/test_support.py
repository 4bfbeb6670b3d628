"""What does not run in a page is refused by name, everything at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.errors import UsageError
from clockhands.exploring import support
from clockhands.exploring.support import SCHEMES, check_support
from tests.exploring.models import make_run


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_that_is_listed_is_taken(scheme: str, tmp_path: Path) -> None:
    check_support(make_run(tmp_path, encoder=scheme, decoder=scheme))


def test_every_reason_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "LARGEST", 100)
    run = make_run(
        tmp_path,
        kind="bpe",
        output_transform=True,
        encoder={
            "scheme": "sinusoidal",
            "random_phases": True,
            "transform": "scaled",
            "transform_options": {"factor": 2.0},
        },
        decoder={"scheme": "rope", "spectrum": "linear", "factor": 2.0},
        cross="rope",
    )
    with pytest.raises(UsageError) as told:
        check_support(run)
    first, *reasons = str(told.value).splitlines()
    assert first == f"the model in {tmp_path} does not run in a page:"
    for reason in (
        "model.output_transform", "cross.scheme = 'rope'", "encoder.transform = 'scaled'", "encoder.random_phases",
        "decoder.spectrum = 'linear'", "source tokenizer is of the kind BPE", "and a page runs at most 100",
    ):  # fmt: skip
        assert sum(reason in line for line in reasons) == 1, reason
    assert len(reasons) == 7


def test_another_scheme_is_named_with_those_there_are(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder="kerple", decoder="kerple")
    with pytest.raises(UsageError, match=r"encoder.scheme = 'kerple': the page computes none, sinusoidal, learned"):
        check_support(run)
