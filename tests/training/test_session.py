"""The plot of a run: what it shows, and that equal runs make equal files."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.cli.train import _describe_model_loss
from clockhands.runs.card import make_card
from clockhands.training import Recipe, callbacks, prepare, session, train
from clockhands.training.session import draw_curves
from tests.training.test_start import compute_validation_loss
from tests.training.tiny import tables

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


@pytest.mark.parametrize("shown", [True, False])
def test_a_bar_is_made_only_where_progress_is_to_be_shown(
    shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(callbacks.ProgressBar):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(session, "ProgressBar", Counted)
    train(tables(max_steps=1, save_steps=None, eval_steps=None), tmp_path / "run", progress=shown)
    assert len(made) == shown


def test_the_model_is_that_of_the_lowest_validation_loss(tmp_path: Path) -> None:
    """At this rate the loss rises again: the weights of the last step are not the best, and the run says so."""
    risen = tables(max_steps=12, eval_steps=3, save_steps=None, learning_rate=1.0, explosion=0.0)
    material = prepare(Recipe.from_tables(risen))
    run = train(risen, tmp_path / "run", material=material, draw=False)
    losses = {line["step"]: line["validation_loss"] for line in run.metrics if "validation_loss" in line}
    lowest = min(losses, key=lambda step: losses[step])
    assert lowest != 12, "the planted rise"
    assert run.model_loss == (lowest, losses[lowest])
    assert compute_validation_loss(run, material) == pytest.approx(losses[lowest], rel=1e-5)
    assert f"weights of step {lowest}, whose validation loss is {losses[lowest]:.4f}" in _describe_model_loss(run)
    assert f"after {lowest} steps is {losses[lowest]:.4f} nats" in make_card(run)
    last = train(risen, tmp_path / "last", {"training.export": "last"}, material=material, draw=False)
    assert last.model_loss == (12, losses[12]) and last.metrics[-1]["validation_loss"] == losses[12]
    assert compute_validation_loss(last, material) == pytest.approx(losses[12], rel=1e-5)
    assert "weights of step" not in _describe_model_loss(last)
    assert f"It was lowest after {lowest} steps: {losses[lowest]:.4f}." in make_card(last)
