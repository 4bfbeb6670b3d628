"""Cross-attention: weights that sum to 1 over the source, and a panel for each head."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clockhands.errors import UsageError
from clockhands.generation import compute_cross_attention, draw_cross_attention
from clockhands.runs import Run
from clockhands.runs.recipe import vary_recipe
from clockhands.training import train


def test_cross_attention_is_a_distribution_over_the_source(translator: Run) -> None:
    weights, sources, targets = compute_cross_attention(translator, "Tom bit Anna")
    assert weights.shape == (1, 2, len(targets), len(sources))
    assert sources[:3] == ["Tom", "bit", "Anna"] or [word.strip() for word in sources[:3]] == ["Tom", "bit", "Anna"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    figure = draw_cross_attention(translator, "Tom bit Anna")
    assert [panel.title for panel in figure.panels] == ["layer 1, head 1", "layer 1, head 2"]
    assert figure.panels[1].marks[0].z[0][0] == pytest.approx(float(weights[0, 1, 0, 0]))
    assert figure.caption.endswith("every row sums to 1.")


def test_a_target_of_the_caller_is_read_instead_of_the_translation(translator: Run) -> None:
    weights, _, targets = compute_cross_attention(translator, "Tom bit Anna", "Anna bit Tom Tom")
    assert len(targets) == len(translator.tokenizers.target("Anna bit Tom Tom")["input_ids"]) == weights.shape[2]
    assert [word.strip() for word in targets[:4]] == ["Anna", "bit", "Tom", "Tom"]


def test_an_empty_source_and_a_language_model_are_refused(translator: Run, writer: Run) -> None:
    with pytest.raises(UsageError, match="there is no source sentence"):
        compute_cross_attention(translator, " ")
    with pytest.raises(UsageError, match="cannot draw cross-attention with"):
        compute_cross_attention(writer, "Tom")


def test_a_decoder_without_layers_is_refused(translator: Run, tmp_path: Path) -> None:
    recipe = vary_recipe(translator.recipe, {"model.decoder_layers": 0, "training.max_steps": 1})
    run = train(recipe, tmp_path / "run")
    with pytest.raises(UsageError, match="a decoder of 0 layers, so there is no cross-attention"):
        compute_cross_attention(run, "Tom bit Anna")


def test_a_caption_does_not_say_that_rows_sum_to_1_where_a_scheme_replaces_the_softmax(
    translator: Run, tmp_path: Path
) -> None:
    recipe = vary_recipe(translator.recipe, {"position.cross.scheme": "sinks", "training.max_steps": 1})
    run = train(recipe, tmp_path / "run")
    weights, _, _ = compute_cross_attention(run, "Tom bit Anna", "Anna bit Tom")
    assert bool((weights.sum(-1) < 0.99).all())
    assert draw_cross_attention(run, "Tom bit Anna", "Anna bit Tom").caption.endswith("rows need not sum to 1.")
