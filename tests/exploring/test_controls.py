"""What the controls make of the encoder's input, against sinusoids written out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from clockhands.data import open_corpus
from clockhands.exploring.controls import (
    MEASURED,
    UNTOUCHED,
    Controls,
    apply_controls,
    list_applicable,
    measure,
    translate_controlled,
)
from clockhands.generation import Search, translate
from clockhands.model import TokenBatch
from clockhands.runs import Run
from clockhands.schemes import Sinusoidal
from tests.exploring.models import PAIRS, make_run


def sinusoid(position: float, base: float = 10_000.0, width: int = 4) -> list[float]:
    angles = [position * base ** (-2 * pair / width) for pair in range(width // 2)]
    return [wave(angle) for angle in angles for wave in (math.sin, math.cos)]


@pytest.mark.parametrize(
    ("controls", "rows"),
    [
        (Controls(), [sinusoid(0), sinusoid(1)]),
        (Controls(reversed=True), [sinusoid(1), sinusoid(0)]),
        (Controls(frozen_at=1.5), [sinusoid(1.5), sinusoid(1.5)]),
        (Controls(offset=5.0), [sinusoid(5), sinusoid(6)]),
        (Controls(base=100.0), [sinusoid(0, 100), sinusoid(1, 100)]),
        (Controls(loudness=0.5), [[0.5 * x for x in sinusoid(0)], [0.5 * x for x in sinusoid(1)]]),
        (Controls(stopped_hand=0), [sinusoid(0), [0.0, 1.0, *sinusoid(1)[2:]]]),
        (Controls(sine_only=True), [[0.0] * 4, [sinusoid(1)[0], 0.0, sinusoid(1)[2], 0.0]]),
    ],
)
def test_each_control_does_what_it_says(controls: Controls, rows: list[list[float]]) -> None:
    encoding = controls.encode(Sinusoidal(4), 2)
    assert encoding is not None
    assert torch.allclose(encoding[0], torch.tensor(rows), atol=1e-6)


def test_channels_of_the_other_layout_are_the_same_hands() -> None:
    interleaved = Controls(stopped_hand=1, sine_only=True).encode(Sinusoidal(4), 3)
    half = Controls(stopped_hand=1, sine_only=True).encode(Sinusoidal(4, layout="half"), 3)
    assert interleaved is not None and half is not None
    assert torch.equal(half[..., [0, 2, 1, 3]], interleaved)


def test_the_model_is_as_before_after_the_block(tmp_path: Path) -> None:
    run = make_run(tmp_path, norm="pre")
    batch = TokenBatch(torch.tensor([[4, 5, 6, 2]]))
    with torch.no_grad():
        before = run.model.transformer.encode(batch).states_BTD
        with apply_controls(run, Controls()):
            same = run.model.transformer.encode(batch).states_BTD
        with apply_controls(run, Controls(scale_tokens=False, loudness=8**-0.5)):
            quiet = run.model.transformer.encode(batch).states_BTD
        after = run.model.transformer.encode(batch).states_BTD
    assert torch.equal(before, after)
    assert torch.allclose(before, same, atol=1e-6)
    # Tokens and positions are both √8 times quieter: only the epsilon of the norms and the residual stream know.
    assert not torch.allclose(before, quiet, atol=1e-3)


def test_names_are_those_of_the_page() -> None:
    assert Controls(frozen_at=1.0, scale_tokens=False, sine_only=True).to_page() == {
        "frozenAt": 1.0, "scaleTokens": False, "sineOnly": True,
    }  # fmt: skip
    assert Controls().to_page() == {}


@pytest.mark.parametrize(
    ("scheme", "more"),
    [
        ({"scheme": "none"}, set()),
        ({"scheme": "sinusoidal"}, {"stoppedHand", "base", "loudness", "sineOnly"}),
        ({"scheme": "sinusoidal", "waves": "sine"}, {"stoppedHand", "base", "loudness"}),
        ({"scheme": "sinusoidal", "wavelength": 9.0}, {"stoppedHand", "loudness", "sineOnly"}),
        ({"scheme": "rope"}, {"stoppedHand", "base"}),
        ({"scheme": "learned"}, {"loudness"}),
        ({"scheme": "alibi"}, {"loudness"}),
    ],
)
def test_what_applies_follows_from_the_scheme(scheme: dict[str, object], more: set[str], tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder=scheme, decoder=scheme)
    common = {"positions", "frozenAt", "offset", "shuffledRows", "scaleTokens"}
    assert set(list_applicable(run, "decoder")) == common | more
    assert set(list_applicable(run, "encoder")) == common | more | {"reversed"}


@pytest.mark.parametrize("beam", [1, 3])
def test_untouched_texts_are_those_of_translate(translator: Run, beam: int) -> None:
    recipe = translator.recipe
    sources = open_corpus(recipe.corpus, **recipe.corpus_options).sources("test")
    ours, _ = translate_controlled(translator, sources, [Controls(), Controls(loudness=4.0)], beam)
    for translation, expected in zip(ours, translate(translator, sources, Search(beam)), strict=True):
        assert (translation.source, translation.text) == (expected.source, expected.text)
        assert translation.score == pytest.approx(expected.score, abs=1e-4)


def test_what_was_trained_without_the_factor_is_not_measured_without_it(tmp_path: Path) -> None:
    names = {
        scale: {row["name"] for row in measure(make_run(tmp_path / scale, token_scale=scale), PAIRS)}
        for scale in ("sqrt", "one")
    }
    assert names["sqrt"] - names["one"] == {"tokens without √d"}


def test_a_translator_without_its_positions_gets_less_right(translator: Run) -> None:
    recipe = translator.recipe
    pairs = open_corpus(recipe.corpus, **recipe.corpus_options).pairs("test")
    rows = {row["name"]: row for row in measure(translator, pairs)}
    assert list(rows) == list(MEASURED)
    for name in (UNTOUCHED, "position ½ as loud", "tokens without √d", "second hand stopped"):
        (alone,) = translate_controlled(translator, [pair.source for pair in pairs], [MEASURED[name]])
        right = sum(text.text == pair.target for text, pair in zip(alone, pairs, strict=True))
        confidence = sum(math.exp(text.score) for text in alone) / len(alone)
        assert (rows[name]["right"], rows[name]["confidence"]) == (right, pytest.approx(confidence, abs=1e-4)), name
    assert rows[UNTOUCHED]["right"] > 20
    assert 0 < rows["tokens without √d"]["confidence"] < rows[UNTOUCHED]["confidence"] <= 1
    assert rows["every token at position 0"]["right"] <= rows[UNTOUCHED]["right"] // 2
    assert {row["of"] for row in rows.values()} == {len(pairs)}


def test_a_model_without_sinusoids_is_counted_untouched(tmp_path: Path) -> None:
    (row,) = measure(make_run(tmp_path, encoder="rope", decoder="rope"), PAIRS)
    assert (row["name"], row["controls"], row["of"]) == (UNTOUCHED, {}, 2)
