"""Length and variation are two quantities: tour, inspect, answers and explore have one of each for a run."""

from __future__ import annotations

import pytest

from clockhands.exploring.page import _measure_lengths
from clockhands.findings import Findings
from clockhands.inspection import inspect, open_subject
from clockhands.inspection.during_training import MEASURE_FUNCTIONS
from clockhands.inspection.number_format import format_ratio
from clockhands.inspection.run import DEFAULT_COUNT
from clockhands.inspection.text_choice import choose_windows
from clockhands.runs import open_run
from tests.studies.tour.short import make_tour


def test_four_pages_agree_on_one_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = make_tour(tmp_path_factory)
    told = Findings.load(folder / "findings.json")["loudness.scale"]
    row = next(row for row in told.table.rows if row[:2] == ("with √d", "after training"))
    length, variation = float(row[2]), float(row[3])  # type: ignore[arg-type]
    assert abs(length - variation) > 0.5, "a test of two quantities that are equal would show nothing"
    assert f"{length:.2f} times after" in told.verdict and f"and {variation:.2f} times as much" in told.verdict
    inspected = inspect(folder, control=False)["loudness"]
    assert inspected.details["length"] == pytest.approx(length) and inspected.details["variation"] == pytest.approx(
        variation
    )
    assert (
        f"a token is {format_ratio(length)} times as long as a position, and tokens vary "
        f"{format_ratio(variation)} times" in inspected.verdict
    )
    subject = open_subject(folder)
    windows = choose_windows(subject, None, None, DEFAULT_COUNT)
    answered = MEASURE_FUNCTIONS["loudness"](subject, windows)
    assert answered["word over position"] == pytest.approx(variation)
    rows = answered["length of a word's row"], answered["length of a position's row"]
    assert rows[0] / rows[1] == pytest.approx(length)
    explored = _measure_lengths(open_run(folder))["lengths"]
    assert (explored["word"], explored["position"]) == pytest.approx(rows)
