"""Findings of the loss."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from clockhands.comparison import loss_findings
from clockhands.comparison.trial import LongerText
from clockhands.comparison.verdict_findings import conclude
from tests.comparison.planted import results


def test_a_crowd_is_not_drawn_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_findings, "MOST_LINES", 2)
    findings = conclude(results())
    for name in ("compare.curves", "compare.lengths"):
        panel = findings[name].figure.panels[0]
        drawn = {mark.label for mark in panel.marks}
        assert len(drawn) == 2 and "base" in drawn
        assert len({row[0] for row in findings[name].table.rows}) == 4
        assert panel.title == "base and the 1 lowest of the others"


def test_the_lowest_loss_is_told_with_the_range_of_its_seeds() -> None:
    found = conclude(results())["compare.curves"]
    lowest = min(found.table.rows, key=lambda row: row[1])
    assert (found.value, *found.interval) == lowest[1:4] and lowest[2] < lowest[1] < lowest[3]
    _, mean, low, high, *_ = lowest
    numbers = f"{mean:.3f} nats per token (seeds from {low:.3f} to {high:.3f}), that of {lowest[0]}."
    assert found.verdict == f"The lowest mean validation loss at the last evaluation is {numbers}"


def test_a_split_that_all_variants_refuse_is_passed_over() -> None:
    comparison = results()
    trials = tuple(
        replace(trial, longer={"longer-9": LongerText(refused="no such position"), **trial.longer})
        for trial in comparison.trials
    )
    found = conclude(replace(comparison, trials=trials))["compare.lengths"]
    assert (
        found.verdict
        == "On longer-7 the lowest mean loss is 5.50 nats per token (seeds from 3.00 to 8.00), that of base."
    )


def test_the_table_tells_which_seeds_reached_the_target_and_when() -> None:
    """Beside the loss of each variant: of how many seeds, the median step and second, from its own trials."""
    comparison = results()
    for row in conclude(comparison)["compare.curves"].table.rows:
        hits = [trial.reached for trial in comparison.get_trials(row[0]) if trial.reached is not None]
        expected = (len(hits), median(hit.step for hit in hits), median(hit.seconds for hit in hits))
        assert row[4:] == (expected if hits else (0, None, None))
    assert any(row[4] for row in conclude(comparison)["compare.curves"].table.rows)
