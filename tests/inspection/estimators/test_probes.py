"""Probes on repeated splits: whole groups on one side, the ridge of the textbook, and intervals that hold the truth."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.estimators.probes import (
    STRENGTH,
    CrossValidation,
    Ridge,
    compute_corrected_interval,
    find_nearest_row,
    fit_network_r2,
)
from clockhands.inspection.measures.survival import _probe_positions


def test_texts_of_one_group_stay_on_one_side() -> None:
    groups = torch.tensor([0, 0, 0, 3, 4, 4, 6, 7, 8, 9, 10, 11, 12, 13, 13, 15])
    splits = CrossValidation.draw(groups)
    assert len(splits.held_out_blocks) == 10 and len(set(splits.held_out_blocks)) == 10
    for fitted, held in splits:
        assert sorted([*fitted.tolist(), *held.tolist()]) == list(range(16))
        assert not set(groups[fitted].tolist()) & set(groups[held].tolist())
    assert splits.fitted_texts == pytest.approx(12, abs=1.5)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_few_texts_and_texts_that_are_all_alike_are_split_all_the_same(count: int) -> None:
    for groups in (torch.arange(count), torch.zeros(count, dtype=torch.long)):
        for fitted, held in CrossValidation.draw(groups):
            assert len(fitted) >= 1 <= len(held)


def test_ridge_on_every_split_is_the_ridge_of_the_textbook() -> None:
    """Against the normal equations on the fitted texts alone, in float64."""
    generator = torch.Generator().manual_seed(0)
    x = 100 + torch.randn(12, 5, 4, generator=generator)
    y = x @ torch.randn(4, 3, generator=generator) + 0.1 * torch.randn(12, 5, 3, generator=generator)
    splits = CrossValidation.draw(torch.arange(12))
    for (fitted, held), (same, guess) in zip(splits, Ridge(x, y, splits).predict(), strict=True):
        assert torch.equal(held, same)
        a, b = x[fitted].flatten(0, 1).double(), y[fitted].flatten(0, 1).double()
        gram = (a - a.mean(0)).T @ (a - a.mean(0))
        gram += STRENGTH * gram.diagonal().mean() * torch.eye(4)
        weights = torch.linalg.solve(gram, (a - a.mean(0)).T @ (b - b.mean(0)))
        expected = (x[held].double() - a.mean(0)) @ weights + b.mean(0)
        torch.testing.assert_close(guess.double(), expected, atol=2e-3, rtol=1e-4)


def test_states_without_any_difference_are_read_as_chance() -> None:
    """Where all states are equal, a system without a solution was solved."""
    hits = _probe_positions(torch.zeros(16, 8, 6), CrossValidation.draw(torch.arange(16)))
    assert float(hits.mean()) == pytest.approx(1 / 8)


def _states(generator: torch.Generator, texts: int = 24, length: int = 6) -> torch.Tensor:
    """Positions on a line, and texts that differ as a whole, so that tokens of one text are not independent."""
    place = torch.linspace(-1, 1, length)[:, None] * torch.tensor([1.0, 0.5])
    text = 0.4 * torch.randn(texts, 1, 2, generator=generator)
    return place + text + 0.25 * torch.randn(texts, length, 2, generator=generator)


def test_the_interval_holds_the_true_score_and_an_uncorrected_one_does_not() -> None:
    """The score that probes fitted on 18 texts have on average, over 150 samples of texts."""
    generator = torch.Generator().manual_seed(0)
    runs = [
        _probe_positions(_states(generator), CrossValidation.draw(torch.arange(24), seed=seed)) for seed in range(150)
    ]
    truth = float(torch.stack(runs).mean())
    held = {
        ratio: sum(low <= truth <= high for low, high in (compute_corrected_interval(run, ratio) for run in runs))
        / len(runs)
        for ratio in (1 / 3, 0.0)
    }
    assert held[1 / 3] >= 0.9
    assert held[0.0] < 0.85


def test_one_split_gives_no_interval_but_a_point() -> None:
    assert compute_corrected_interval(torch.tensor([0.5]), 0.3) == (0.5, 0.5)


def test_a_network_reads_what_no_line_can() -> None:
    """A square and the length of the vector; noise has nothing to read, so R² is not above 0."""
    draw = torch.Generator().manual_seed(0)
    x, test = torch.randn(600, 4, generator=draw), torch.randn(300, 4, generator=draw)
    for read in (lambda rows: rows[:, 0].square(), lambda rows: rows.norm(dim=1)):
        assert fit_network_r2(x, read(x), test, read(test)) > 0.9
    noise = torch.randn(900, generator=draw)
    assert fit_network_r2(x, noise[:600], test, noise[600:]) < 0.1


def test_the_nearest_row_is_that_of_the_largest_cosine() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    vectors = torch.tensor([[9.0, 1.0], [0.1, 0.2], [-0.01, 0.0], [0.0, 5.0]])
    assert find_nearest_row(vectors, rows).tolist() == [0, 1, 2, 1]
