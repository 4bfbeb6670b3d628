"""The simulation of comparisons: its laws have the truth that they name, and a wrong interval is noticed by it."""

from __future__ import annotations

import json
from dataclasses import replace

import calibrate
import numpy as np
import pytest
from laws import DEPTH, ITEMS, LAWS, Law
from simulation import Cell, Equality, Rate, make_simulated_plan, measure_cell, measure_equality, simulate

from clockhands.comparison.learning import find_groups
from clockhands.comparison.statistics import paired, simultaneous

GAUSSIAN, _, TWINS, CEILING, FAILING, _, QUIET, ALIKE, KINDS = LAWS[:9]
pytestmark = pytest.mark.usefixtures("few_draws")


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_law_has_the_truth_that_it_names(law: Law) -> None:
    scores_VSN = law.draw(law.draw_scales(40, np.random.default_rng(9)), 50, np.random.default_rng(0))
    assert scores_VSN.shape == (41, 50, law.items)
    learned = scores_VSN.mean(axis=2) > 20
    assert learned.mean() == pytest.approx(1 - law.failing, abs=0.03)
    assert scores_VSN[learned].mean() == pytest.approx(law.truth, abs=2.5)


def test_twins_are_equally_hard_and_known_as_groups() -> None:
    scores_VSN = TWINS.draw(np.ones(2), 400, np.random.default_rng(1))
    items_N = scores_VSN[0].mean(axis=0)
    assert np.corrcoef(items_N[::2], items_N[1::2])[0, 1] > 0.98
    assert abs(np.corrcoef(items_N[1:-1:2], items_N[2::2])[0, 1]) < 0.3
    plan = make_simulated_plan(5, 1)
    groups = find_groups(simulate(plan, TWINS, TWINS.draw(np.ones(2), 5, np.random.default_rng(2))))
    assert groups is not None and len(set(groups)) == ITEMS // 2


def test_the_later_laws_have_what_they_are_named_after() -> None:
    scales_V = QUIET.draw_scales(1, np.random.default_rng(0))
    means_VS = QUIET.draw(scales_V, 400, np.random.default_rng(1)).mean(axis=2)
    assert means_VS[0].std() == pytest.approx(means_VS[1].std() / 5, rel=0.2)
    items_VN = replace(ALIKE, seed=0.0).draw(np.ones(2000), 1, np.random.default_rng(2))[:, 0]
    beside = items_VN - items_VN.mean(axis=0)
    correlation = (beside[:, 1:] * beside[:, :-1]).mean() / beside.var()
    assert correlation == pytest.approx(0.2, abs=0.02)
    assert (beside[:, 2:] * beside[:, :-2]).mean() / beside.var() == pytest.approx(0.04, abs=0.02)
    means_S = KINDS.draw(np.ones(1), 2000, np.random.default_rng(3)).mean(axis=(0, 2))
    lower_S = means_S < means_S.max() - DEPTH / 2 - 6
    assert lower_S.mean() == pytest.approx(0.2, abs=0.03)
    assert means_S[~lower_S].mean() - means_S[lower_S].mean() == pytest.approx(DEPTH, abs=0.5)


def test_equal_variants_are_seldom_told_apart() -> None:
    """Claimed: 5 % for all eleven together. The page has many more draws."""
    cell = measure_cell(GAUSSIAN, 5, 11, 60)
    assert cell.false.value <= 0.12 and cell.covered.value >= 0.85
    assert cell.shown is not None and cell.shown.value >= 0.6


def test_items_that_are_nearly_always_right_leave_room() -> None:
    cell = measure_cell(CEILING, 5, 2, 60)
    assert (cell.false.count, cell.covered.count) == (0, 60) and cell.promised is None


def test_seeds_that_fail_are_no_difference() -> None:
    cell = measure_cell(FAILING, 5, 2, 60)
    assert cell.false.value <= 0.1 and cell.covered.value >= 0.88
    assert cell.covered.drawn < 60, "fewer than three seeds that learned have no interval"
    assert cell.promised is None


def test_an_interval_that_is_too_narrow_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half as wide, and most comparisons of eleven equal variants show a difference."""
    judged = simultaneous._judge

    def narrow(*arguments: object) -> list[object]:
        gaps = judged(*arguments)  # type: ignore[arg-type]
        return [
            replace(gap, low=(gap.value + gap.low) / 2, high=(gap.value + gap.high) / 2, adjusted=gap.p) for gap in gaps
        ]

    monkeypatch.setattr(simultaneous, "_judge", narrow)
    assert measure_cell(GAUSSIAN, 5, 11, 40).false.value > 0.3


@pytest.mark.parametrize("law", [GAUSSIAN, CEILING, FAILING], ids=lambda law: law.name)
def test_variants_that_differ_by_the_margin_are_seldom_called_equivalent(law: Law) -> None:
    """Claimed: at most 5 %; of 60, more than 9 would be an accident of one in a thousand."""
    row = measure_equality(law, 5, 2, 60)
    assert row.false.count <= 9
    assert row.shown.count > 2 * row.false.count and (law is FAILING or row.shown.count > 20)
    assert Equality.from_dict(json.loads(json.dumps(row.to_dict()))) == row


def test_a_margin_that_the_verdict_does_not_heed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired.PairedDifference, "is_within", lambda self, margin: abs(self.value) < 1.5 * margin)
    assert measure_equality(GAUSSIAN, 5, 2, 20).false.count > 4


def test_a_cell_is_read_back() -> None:
    cell = Cell("law", 5, 1, Rate(1, 20), Rate(19, 20), Rate(20, 20), 2.5, Rate(8, 10))
    assert Cell.from_dict(json.loads(json.dumps(cell.to_dict()))) == cell
    bare = Cell("law", 5, 1, Rate(1, 20), Rate(19, 20), Rate(20, 20))
    assert Cell.from_dict(json.loads(json.dumps(bare.to_dict()))) == bare
    assert Rate(0, 0).interval == (0.0, 1.0)


def test_the_page_has_every_cell_that_was_measured() -> None:
    cells = calibrate.read_cells()
    first = {(law.name, seeds, variants) for law in LAWS for seeds in (5, 10) for variants in (1, 11, 42)}
    assert first <= set(cells)
    page = calibrate.write_page()
    assert all(f"| {law} | {seeds} | {variants} |" in page for law, seeds, variants in cells)


def test_a_row_whose_equality_is_false_too_often_is_named() -> None:
    good = Equality("law", 5, 1, Rate(5, 100), Rate(80, 100))
    assert "in 0 of 1 rows." in calibrate.describe_equality([good])
    text = calibrate.describe_equality([good, Equality("bad law", 10, 11, Rate(20, 100), Rate(80, 100))])
    assert text.startswith("Over all rows 12.5 % [")
    assert "in 1 of 2 rows: bad law, 10 seeds, 11 variants." in text
    assert calibrate.describe_equality([]) == "Nothing has been measured yet."


def test_a_cell_is_measured_again_where_chance_may_be_why_it_misses_the_aim() -> None:
    """23 of 300 have an interval that holds 7 %; 40 of 300 have none that does, and 21 of 300 do not miss it."""
    cells = {count: Cell("law", 5, 1, Rate(count, 300), Rate(95, 100), Rate(95, 100)) for count in (21, 23, 40)}
    assert [calibrate.is_unclear(cell) for cell in cells.values()] == [False, True, False]
    name = ("law", 5, 1)
    text = calibrate.describe_again({name: cells[23]}, {name: replace(cells[23], false=Rate(110, 2000))})
    assert "by 2,000 comparisons" in text and "7.7 % [4.9, 11.3] were false" in text
    assert calibrate.describe_again({name: cells[23]}, {}) == ""


def test_a_cell_that_misses_an_aim_is_named() -> None:
    good = Cell("law", 5, 1, Rate(5, 100), Rate(95, 100), Rate(95, 100))
    narrow = Cell("narrow", 5, 1, Rate(5, 100), Rate(80, 100), Rate(95, 100))
    assert calibrate.describe_aims([good]).startswith("All 1 cells keep both aims.")
    assert "miss" not in calibrate.describe_aims([good])
    text = calibrate.describe_aims([good, replace(good, variants=11, false=Rate(9, 100)), narrow])
    assert "- law, 5 seeds, 11 variants: 9.0 % [4.2, 16.4] false." in text
    assert "- narrow, 5 seeds: 80.0 % [70.8, 87.3] covered." in text and text.count("- ") == 2
