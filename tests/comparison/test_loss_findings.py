"""Findings of the loss."""

from __future__ import annotations

import pytest

from clockhands.comparison import loss_findings
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
