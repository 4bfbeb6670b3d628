"""The encoding itself, against closed forms."""

from __future__ import annotations

import pytest
import torch

from clockhands.exploring.page import _measure_lengths
from clockhands.findings import Findings
from clockhands.inspection import inspect, open_subject
from clockhands.inspection.during_training import MEASURE_FUNCTIONS
from clockhands.inspection.number_format import format_ratio
from clockhands.inspection.reading.windows import choose_windows
from clockhands.inspection.run import DEFAULT_COUNT
from clockhands.runs import open_run
from clockhands.schemes import Sinusoidal
from clockhands.studies.tour.encoding_findings import draw_classic, find_rotation, find_wavelengths
from tests.studies.tour.short import make_tour


def test_the_rotation_is_exact_for_sinusoids_and_for_nothing_else() -> None:
    rows = Sinusoidal(32).encode(torch.arange(200)[None])[0]
    assert find_rotation(rows).value < 1e-6
    assert find_rotation(rows).verdict.startswith("One rotation R(k) for all t")
    assert "over all t and k = 1, 2, 4, 8, 16, 32 and 64 is" in find_rotation(rows).verdict
    noise = find_rotation(torch.randn(200, 32))
    assert noise.value > 1 and noise.verdict.startswith("No one rotation R(k) for all t") and noise.light == "bad"
    assert find_rotation(rows[:, torch.randperm(32)]).value > 0.1


def test_the_classic_picture_is_16_by_32() -> None:
    figure = draw_classic(Sinusoidal(64).encode(torch.arange(100)[None])[0]).figure
    z = figure.panels[0].marks[0].z
    assert (len(z), len(z[0])) == (16, 32)
    assert z[0][:4] == (0.0, 1.0, 0.0, 1.0)
    assert z[3][0] == pytest.approx(0.14112, abs=1e-5)  # sin 3


def test_wavelengths_run_from_two_pi_to_the_base() -> None:
    rows = find_wavelengths(64).table.rows
    assert rows[0][1] == pytest.approx(6.28319, abs=1e-4)
    assert rows[-1][1] == pytest.approx(6.28319 * 10_000 ** (62 / 64), rel=1e-5)


def test_the_length_of_the_rows_is_told_as_it_is() -> None:
    """√(64/2) for sinusoids; half as much, which is not that, for half the amplitude."""
    rows = Sinusoidal(64).encode(torch.arange(100)[None])[0]
    assert "√(d/2) = 5.657, and no value leaves [-1, 1] (largest 1.000)" in draw_classic(rows).verdict
    assert "all 100 rows have the same length, 2.828, and no value leaves" in draw_classic(rows / 2).verdict
    uneven = torch.cat([rows, 2 * rows])
    assert "the 200 rows have lengths from 5.657 to 11.314, and values leave [-1, 1]" in draw_classic(uneven).verdict


def test_four_pages_agree_on_one_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = make_tour(tmp_path_factory)
    told = Findings.load(folder / "findings.json")["loudness.scale"]
    row = next(row for row in told.table.rows if row[:2] == ("with √d", "after training"))
    length, variation = float(row[2]), float(row[3])  # type: ignore[arg-type]
    assert abs(length - variation) > 0.5, "a test of two quantities that are equal would show nothing"
    long, varied = format_ratio(length), format_ratio(variation)
    assert f"{long} times after" in told.verdict and f"and {varied} times as much" in told.verdict
    assert f'<span class="value">{long}&nbsp;<small>length of' in (folder / "report.html").read_text("utf8")
    inspected = inspect(folder, control=False)["loudness"]
    assert (inspected.details["length"], inspected.details["variation"]) == pytest.approx((length, variation))
    assert f"a token is {long} times as long as a position, and tokens vary {varied} times" in inspected.verdict
    subject = open_subject(folder)
    windows = choose_windows(subject, None, None, DEFAULT_COUNT)
    answered = MEASURE_FUNCTIONS["loudness"](subject, windows)
    assert answered["word over position"] == pytest.approx(variation)
    rows = answered["length of a word's row"], answered["length of a position's row"]
    assert rows[0] / rows[1] == pytest.approx(length)
    explored = _measure_lengths(open_run(folder))["lengths"]
    assert (explored["word"], explored["position"]) == pytest.approx(rows)
