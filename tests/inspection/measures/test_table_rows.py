"""Tables that hold nothing to measure, or hardly anything, for all measures of the table alike."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from scipy.stats import spearmanr

from clockhands.errors import CheckpointError
from clockhands.inspection.measures.table_rows import (
    LINEAR,
    ROTATION,
    STANDING_STILL,
    StepErrors,
    _compute_symmetry,
    _correlate_with_order,
    _describe,
    _describe_trend,
    compute_cosines,
    measure_random_split,
    measure_step,
)
from clockhands.inspection.reading.capture import capture

from ..planted import answer, table_answer
from .tables import learned, mixed, sinusoid, walk

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


@pytest.mark.parametrize("equal", [0, 40])
def test_rows_that_are_equal_to_another_one_are_counted(equal: int) -> None:
    rows = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    rows[24 : 24 + equal // 2] = rows[1 : 1 + equal // 2]
    told = f"{equal} of the 63 rows are equal to another one: they do not tell these positions apart."
    assert (told in table_answer("table.similarity", learned(rows)).verdict) == bool(equal)


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


def test_the_cosine_of_every_distance_is_in_the_table() -> None:
    found = table_answer("table.similarity", learned(walk(40, 16)))
    assert [row[0] for row in found.table.rows] == list(range(1, 39)), "39 rows without the first"


@pytest.mark.parametrize(
    ("correlation", "said"),
    [
        (-1.0, "falls steadily"),
        (-0.6, "falls on the whole (ρ = −0.60)"),
        (-0.25, "does not fall on the whole (ρ = −0.25)"),
    ],
)
def test_how_similarity_goes_with_distance(correlation: float, said: str) -> None:
    assert _describe_trend(correlation) == said


def test_distance_explains_the_similarities_of_a_walk_and_not_those_of_noise() -> None:
    smooth = table_answer("table.similarity", learned(walk(64, 16)))
    assert smooth.verdict.startswith("Distance alone explains") and smooth.light == "good"
    noise = table_answer("table.similarity", learned(torch.randn(64, 16, generator=torch.Generator().manual_seed(1))))
    assert (
        noise.verdict.startswith("Distance explains the similarities no better than by chance")
        and noise.light == "warn"
    )


def test_the_cosine_of_two_rows_is_that_of_the_rows() -> None:
    """Of rows that are long and short, so that nothing else divides out."""
    rows = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)) * torch.logspace(-2, 2, 12)[:, None]
    expected = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1)
    torch.testing.assert_close(compute_cosines(rows), expected)


def test_a_table_that_is_as_similar_ahead_as_behind_is_symmetric() -> None:
    """A cosine that depends on the distance alone: 1. One that grows along the table: far from it."""
    place = torch.arange(40.0)
    distance = (place - place[:, None]).abs()
    assert _compute_symmetry(torch.cos(0.3 * distance)) == pytest.approx(1.0)
    noise = torch.rand(40, 40, generator=torch.Generator().manual_seed(0))
    assert abs(_compute_symmetry((noise + noise.T) / 2)) < 0.3
    assert _compute_symmetry(torch.ones(40, 40)) == 0.0


@pytest.mark.parametrize(("period", "cosine"), [(8, "0.71"), (4, "0.00"), (3, "−0.50")])
def test_neighbours_have_the_cosine_of_one_step(period: int, cosine: str) -> None:
    """Rows on a circle that turn by 2π/period, all around it."""
    angle = 2 * math.pi * torch.arange(193.0) / period
    rows = torch.stack([angle.cos(), angle.sin()], dim=1).repeat(1, 2)
    verdict = table_answer("table.similarity", learned(rows)).verdict
    assert f"; neighbours have cosine {cosine}, and similarity " in verdict


@pytest.mark.parametrize(("rank", "told"), [(3, True), (64, False)])
def test_a_low_rank_is_told_where_it_was_planted(rank: int, told: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, axes = torch.randn(128, rank, generator=generator), torch.randn(64, 64, generator=generator)
    verdict = table_answer("table.similarity", learned(rows @ torch.linalg.qr(axes).Q[:rank])).verdict
    sentence = " The table has a low rank: 99 % of its variance lies in 3 directions of 64."
    assert verdict.endswith(sentence) == told and ("low rank" in verdict) == told


def test_a_sinusoid_steps_by_the_same_rotation_everywhere() -> None:
    finding = table_answer("table.shift", learned(sinusoid(128, 64)))
    assert finding.verdict.startswith("A step by one is the same rotation everywhere: on stretches of rows that it was")
    assert finding.light == "good"
    still = finding.reference("standing still")
    assert still is not None and finding.value < 0.2 * still.value  # type: ignore[operator]


@pytest.mark.parametrize(("seed", "width"), [(0, 64), (1, 64), (2, 384)])
def test_a_random_walk_has_no_rotation_better_than_standing_still(seed: int, width: int) -> None:
    """It is smooth: any map that stays near where it was predicts it well, and none better than standing still."""
    finding = table_answer("table.shift", learned(walk(128, width, seed)))
    assert finding.verdict.startswith("No one rotation predicts the next row better than both standing still and a mul")
    assert finding.light == "info"
    assert finding.value < 0.2, "small although nothing turns: a reference is needed"  # type: ignore[operator]


def test_a_map_that_misses_much_is_not_the_same_everywhere() -> None:
    """A noisy clock: a rotation beats standing still, and still misses much. It was the same everywhere."""
    finding = table_answer("table.shift", learned(mixed(256, 64, [5.0, 9.0, 31.0], noise=0.1)))
    assert finding.value > 0.2 and finding.light == "info"  # type: ignore[operator]
    assert finding.verdict.startswith(
        "One rotation predicts the next row better than standing still and than a multipl"
    )
    assert "So is a step by" not in finding.verdict


def test_longer_steps_are_said_to_be_the_same_where_each_is_the_same_kind_of_map() -> None:
    rows = sinusoid(128, 64)[1:].double()
    turns = measure_step(rows - rows.mean(0), 1)
    assert turns.is_same_map and turns.reported_map == ROTATION
    shrinks = replace(turns, step=2, by_stretch_s4=turns.by_stretch_s4[:, [0, 2, 2, 3]])
    assert shrinks.is_same_map and shrinks.reported_map == LINEAR
    assert _describe([turns, replace(turns, step=2)]).endswith(" So is a step by 2.")
    assert "So is" not in _describe([turns, shrinks]) and "So is" not in _describe([turns])


def test_one_straight_line_leaves_it_undecided() -> None:
    finding = table_answer("table.shift", learned(torch.linspace(-1, 1, 64)[:, None] * torch.ones(64)))
    assert finding.verdict.startswith("It is undecided whether one rotation predicts the next row better than both st")


def _errors(rows_ND: torch.Tensor, step: int = 1) -> StepErrors:
    rows = rows_ND.double()
    return measure_step(rows - rows.mean(0), step)


@pytest.mark.parametrize("step", [1, 4, 16])
def test_a_clock_steps_by_one_rotation(step: int) -> None:
    errors = _errors(mixed(256, 64, [5.0, 9.0, 31.0], noise=0.0), step)
    assert errors.means[LINEAR] < 1e-6 and errors.means[ROTATION] < 0.02
    assert errors.estimate_gain(errors.reported_map)[0] > 0.05


def test_standing_still_is_what_it_is_called() -> None:
    """Against the same number computed by hand: both ends of a step of a table in one dimension."""
    rows = torch.linspace(-1, 1, 65, dtype=torch.float64)[:, None] ** 3
    errors = _errors(rows)
    centred = rows - rows.mean()
    still = (centred[1:] - centred[:-1]).square().sum() / 64
    assert errors.means[STANDING_STILL] == pytest.approx(float(still / centred.square().mean()), rel=0.15)


def test_noise_that_only_falls_back_to_its_mean_has_no_gain() -> None:
    rows = torch.zeros(200, 64)
    drawn = torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    for t in range(1, 200):
        rows[t] = 0.6 * rows[t - 1] + drawn[t]
    assert _errors(rows).estimate_gain(LINEAR)[1] < 0, "one multiple of the row does as well as a map"


def test_a_rotation_without_noise_has_no_error_on_rows_held_out_at_random() -> None:
    """A matrix and a rotation find it; of rows that are noise neither predicts the next (a wrong guess has 2)."""
    angle = 2 * math.pi / 16 * torch.arange(80.0)  # whole turns, so that the rows have mean zero
    exact = measure_random_split(torch.stack([angle.cos(), angle.sin()], 1))
    noise = measure_random_split(torch.randn(400, 2, generator=torch.Generator().manual_seed(0)))
    assert max(exact) < 1e-6
    assert noise[0] == pytest.approx(1, abs=0.15) and 1.5 < noise[1] < 2.5


def test_the_correlation_with_the_order_is_spearmans() -> None:
    values = torch.tensor([3.0, 1.0, 1.0, 2.0, -4.0, 1.0, 7.0])
    assert _correlate_with_order(values) == pytest.approx(spearmanr(range(7), values).statistic, abs=1e-12)
