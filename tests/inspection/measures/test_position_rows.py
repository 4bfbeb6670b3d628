"""Tables that hold nothing to measure, or hardly anything, for all measures of the table alike."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.capture import capture

from ..planted import answer, table_answer
from .tables import learned, mixed, walk

MEASURES = ("table.similarity", "table.hands", "table.shift")


NOTHING: dict[str, Callable[[], torch.Tensor]] = {
    "zero": lambda: torch.zeros(64, 64),
    "constant": lambda: torch.full((64, 64), 0.1),
    "constant but for the first row": lambda: torch.full((64, 64), 0.1).index_fill(0, torch.tensor([0]), 3.0),
}


LITTLE: dict[str, Callable[[], torch.Tensor]] = {
    "one row differs": lambda: torch.zeros(64, 64).index_fill(0, torch.tensor([30]), 1.0),
    "two rows in turn": lambda: torch.eye(2).repeat(32, 32),
    "one direction": lambda: torch.linspace(-1, 1, 64)[:, None] * torch.ones(64),
    "a row each": lambda: torch.eye(64),
    "seventeen rows": lambda: walk(17, 64),
    "tiny": lambda: 1e-18 * walk(64, 64),
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("kind", NOTHING)
def test_equal_rows_are_reported_as_equal(kind: str, measure: str) -> None:
    finding = table_answer(measure, learned(NOTHING[kind]()))
    assert finding.light == "skip"
    assert finding.verdict == "All position rows are equal: this table does not tell one position from another."


@pytest.mark.parametrize("kind", [*NOTHING, *LITTLE])
def test_no_table_gives_an_infinite_number_or_none(kind: str) -> None:
    subject = learned((NOTHING | LITTLE)[kind]())
    recorded = capture(subject.model, subject.forward, torch.randint(5, 50, (4, 16)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        findings = [*(table_answer(measure, subject) for measure in MEASURES), answer("directions", subject, recorded)]
    for finding in findings:
        numbers = [finding.value, *(cell for row in finding.table.rows for cell in row)]
        assert all(math.isfinite(number) for number in numbers if isinstance(number, (int, float))), finding.name
        assert " nan" not in finding.verdict and " inf" not in finding.verdict


@pytest.mark.parametrize("measure", MEASURES)
def test_a_short_table_is_skipped_with_its_length(measure: str) -> None:
    finding = table_answer(measure, learned(walk(12, 64)))
    assert finding.light == "skip"
    assert finding.verdict == "The position table has 12 rows; 17 are needed to measure this."


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_model_that_reads_next_to_nothing_is_refused(rows: int) -> None:
    with pytest.raises(CheckpointError, match=rf"reads no more than {rows} tokens at a time; inspect needs 8 or more"):
        learned(walk(rows, 64))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("measure", MEASURES)
def test_no_number_in_a_table_is_one_message(measure: str, broken: float) -> None:
    subject = learned(walk(64, 64))
    subject.model.embeddings.position_embeddings.weight.data[40, 3] = broken  # type: ignore[union-attr,operator,index]
    with pytest.raises(CheckpointError, match=r"position table holds NaN or infinite values \(first in row 40\)"):
        table_answer(measure, subject)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_table_in_low_precision_is_measured(dtype: torch.dtype) -> None:
    subject = learned(mixed(128, 64, [5.0, 9.0, 31.0]), dtype)
    assert [row[0] for row in table_answer("table.hands", subject).table.rows] == pytest.approx([5, 9, 31], rel=0.01)
    assert table_answer("table.shift", subject).verdict.startswith("One rotation predicts the next row better")
    assert table_answer("table.similarity", subject).light == "good"
