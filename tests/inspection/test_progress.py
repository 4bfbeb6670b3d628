"""The bar that inspection shows."""

from __future__ import annotations

from clockhands.inspection.progress import BarProgress, show_progress


def test_no_bar_is_made_unless_it_is_to_be_shown() -> None:
    with show_progress(False) as hidden, show_progress(True) as shown:
        for progress in (hidden, shown):
            progress.expect(3)
            progress.advance("reading")
        assert not isinstance(hidden, BarProgress) and isinstance(shown, BarProgress)
        assert [(task.total, task.completed, task.description) for task in shown.bar.tasks] == [(3, 1, "reading")]
