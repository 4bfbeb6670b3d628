"""What is printed while trials run."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.cli.trials import TrialTable, describe, duration, print_verdicts
from clockhands.comparison import cost
from clockhands.comparison.cost import Overheads
from clockhands.comparison.results import Cost
from clockhands.comparison.trial import Trial
from tests.cli.conftest import Capture, Patch
from tests.comparison.planted import plan, results

PLANTED = {"base": "baseline", "better": "better", "same": "equivalent", "worse": "worse"}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(40, "40 seconds"), (89, "89 seconds"), (90, "2 minutes"), (720, "12 minutes"), (5399, "90 minutes"),
     (5400, "1.5 hours"), (12_600, "3.5 hours")],
)  # fmt: skip
def test_a_time_is_told_in_the_unit_a_person_would_take(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_plan_is_described_with_what_each_variant_costs(share: float, monkeypatch: Patch, capsys: Capture) -> None:
    """Two seconds a step are 2000 ms; the time of the whole is another function's, 12 minutes here.

    Where the measurement got half of a processor, a whole one takes half of that.
    """
    made = plan()
    costs = {variant.name: Cost(12_345, 6, 10, 2.0, {}) for variant in made.variants}
    monkeypatch.setattr(cost, "measure_costs", lambda asked, tell: costs)
    overheads = Overheads(0.0, 0.0, 0.0, 0.0, 0.0, 1.0, share=share)
    monkeypatch.setattr(cost, "measure_overheads", lambda asked, known: overheads)
    monkeypatch.setattr(cost, "estimate_plan", lambda asked, known, overheads, workers: 720.0)
    assert describe(made, workers=2, threads=1) == 0
    printed = capsys.readouterr().out
    assert [line.split()[-3:] for line in printed.splitlines() if "12,345" in line] == [["12,345", "6", "2000"]] * 2
    assert "2 variants × 2 seeds = 4 trials" in printed and "about 12 minutes with 2 workers" in printed
    assert ("50 % of a processor; with a whole one it is about 6 minutes" in printed) == (share == 0.5)


def test_the_table_counts_what_runs_of_each_variant(tmp_path: Path) -> None:
    made = plan()
    table = TrialTable(made, tmp_path, 2, quiet=True)
    first, second = (variant.name for variant in made.variants)
    table.running |= {(first, 1), (first, 2), (second, 2)}
    assert list(table.table().columns[4].cells) == ["2", "1"]


def test_the_time_left_is_that_of_the_trials_so_far(tmp_path: Path, monkeypatch: Patch) -> None:
    """One of four ended in a minute: the other three take about three."""
    made = plan()
    table = TrialTable(made, tmp_path, 1, quiet=True)
    assert table.left() == ""
    first = made.variants[0].name
    table.ended.append(Trial(first, 1, "diverged", error="the loss is nan"))
    monkeypatch.setattr(table, "begun", time.monotonic() - 60)
    assert table.left() == "3 min left"


def test_every_verdict_is_told_whole_in_a_terminal_of_80_columns(monkeypatch: Patch, capsys: Capture) -> None:
    """A column too many was cut off at the edge, and \"the baseline\" lost its last letter."""
    monkeypatch.setenv("COLUMNS", "80")
    made = results()
    print_verdicts(replace(made, plan=replace(made.plan, margin=6.0)))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    ends = {line.split()[0]: line.split()[-1] for line in lines if line.split() and line.split()[0] in PLANTED}
    assert ends == PLANTED
