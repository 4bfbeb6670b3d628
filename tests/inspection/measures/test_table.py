"""What is said of the table as such, tried where it is true and where it is false; and tables that hold nothing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch

from clockhands.errors import CheckpointError
from clockhands.inspection.measures.table_similarity import _trend
from clockhands.inspection.measures.table_step import StepErrors, step_errors
from clockhands.inspection.reading.capture import capture

from ..planted import answer, table_answer
from .tables import learned, mixed, sinusoid, walk

MEASURES = ("table.similarity", "table.hands", "table.shift")


def _errors(rows_ND: torch.Tensor, step: int = 1) -> StepErrors:
    rows = rows_ND.double()
    return step_errors(rows - rows.mean(0), step)


@pytest.mark.parametrize("step", [1, 4, 16])
def test_a_clock_steps_by_one_rotation(step: int) -> None:
    errors = _errors(mixed(256, 64, [5.0, 9.0, 31.0], noise=0.0), step)
    assert errors.linear < 1e-6 and errors.rotation < 0.02
    assert errors.gain(errors.best)[0] > 0.05


def test_standing_still_is_what_it_is_called() -> None:
    """Against the same number computed by hand: both ends of a step of a table in one dimension."""
    rows = torch.linspace(-1, 1, 65, dtype=torch.float64)[:, None] ** 3
    errors = _errors(rows)
    centred = rows - rows.mean()
    still = (centred[1:] - centred[:-1]).square().sum() / 64
    assert errors.still == pytest.approx(float(still / centred.square().mean()), rel=0.15)


def test_the_verdict_on_a_sinusoid_is_that_it_turns() -> None:
    finding = table_answer("table.shift", learned(sinusoid(128, 64)))
    assert finding.verdict.startswith("A step by one is the same rotation everywhere: the best rotation misses")
    assert finding.light == "good"
    still = finding.reference("standing still")
    assert still is not None and finding.value < 0.2 * still.value  # type: ignore[operator]


@pytest.mark.parametrize("width", [64, 384])
@pytest.mark.parametrize("seed", range(3))
def test_the_verdict_on_a_random_walk_is_that_it_does_not(seed: int, width: int) -> None:
    """It is smooth: any map that stays near where it was predicts it well, and none better than standing still."""
    finding = table_answer("table.shift", learned(walk(128, width, seed)))
    assert finding.verdict.startswith(
        "No one rotation predicts the next row better than standing still or a multiple of the row"
    )
    assert finding.light == "info"
    assert finding.value < 0.2, "small although nothing turns: a reference is needed"  # type: ignore[operator]


def test_noise_that_only_falls_back_to_its_mean_does_not_turn() -> None:
    rows = torch.zeros(200, 64)
    drawn = torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    for t in range(1, 200):
        rows[t] = 0.6 * rows[t - 1] + drawn[t]
    assert _errors(rows).gain(0)[1] < 0, "one multiple of the row does as well as a map"


def test_the_cosine_of_every_distance_is_in_the_table() -> None:
    """The largest distance was left out."""
    found = table_answer("table.similarity", learned(walk(40, 16)))
    assert [row[0] for row in found.table.rows] == list(range(1, 39)), "39 rows without the first"


@pytest.mark.parametrize(
    ("correlation", "said"),
    [(-1.0, "falls steadily"), (-0.6, "falls on the whole (ρ = −0.60)"), (0.0, "does not fall")],
)
def test_how_similarity_goes_with_distance(correlation: float, said: str) -> None:
    """Waves were told of, which nothing measures."""
    assert _trend(correlation) == said


def test_a_map_that_misses_much_is_not_the_same_everywhere() -> None:
    """A noisy clock: a rotation beats standing still, and still misses much. It was the same everywhere."""
    finding = table_answer("table.shift", learned(mixed(256, 64, [5.0, 9.0, 31.0], noise=0.1)))
    assert finding.value > 0.2 and finding.light == "info"  # type: ignore[operator]
    assert finding.verdict.startswith("One rotation predicts the next row better than standing still or a multiple of ")
    assert "So it is for steps" not in finding.verdict


def test_one_straight_line_leaves_it_undecided() -> None:
    finding = table_answer("table.shift", learned(torch.linspace(-1, 1, 64)[:, None] * torch.ones(64)))
    assert finding.verdict.startswith("Undecided whether one rotation predicts the next row better than these")


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
def test_equal_rows_are_told_to_be_equal(kind: str, measure: str) -> None:
    finding = table_answer(measure, learned(NOTHING[kind]()))
    assert finding.light == "skip"
    assert finding.verdict == "All position rows are equal: this table tells no position from another."


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
def test_a_short_table_is_told_its_length(measure: str) -> None:
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
