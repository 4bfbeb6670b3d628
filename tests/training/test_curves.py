"""The plot of a run: what it shows, and that equal runs make equal files."""

from __future__ import annotations

from pathlib import Path

from clockhands.training.curves import draw_curves

METRICS = [
    {"step": 10, "loss": 3.0, "learning_rate": 1e-3},
    {"step": 20, "loss": 2.0, "learning_rate": 2e-3, "validation_loss": 2.5},
]


def test_without_a_loss_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "curves.svg"
    assert draw_curves([{"step": 1, "learning_rate": 0.1}], path, "a run") is None
    assert not path.exists()


def test_the_plot_names_its_curves_and_is_the_same_for_the_same_numbers(tmp_path: Path) -> None:
    paths = [draw_curves(METRICS, tmp_path / f"{number}.svg", "a run") for number in (1, 2)]
    texts = [path.read_text("utf8") for path in paths if path is not None]
    assert len(texts) == 2 and texts[0] == texts[1]
    for words in ("a run", "training loss", "validation loss", "learning rate (dotted)"):
        assert f">{words}<" in texts[0]
    changed = draw_curves([{**METRICS[0], "loss": 3.5}, METRICS[1]], tmp_path / "3.svg", "a run")
    assert changed is not None and changed.read_text("utf8") != texts[0]


def test_the_ending_decides_the_format(tmp_path: Path) -> None:
    path = draw_curves(METRICS, tmp_path / "curves.png", "a run")
    assert path is not None and path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
