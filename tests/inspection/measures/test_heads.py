"""Heads that attend by position are counted and named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from clockhands.findings import Finding
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.heads import draw_head_grid
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.attention_hooks import ComputedAttention
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.head_statistics import HeadStatistics, HeadSums
from clockhands.inspection.reading.reading import Reading
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.models.subject import Subject

from .. import planted
from ..planted import VOCAB, answer
from ..tiny import VOCAB as TINY_VOCAB
from ..tiny import tiny
from .readings import answer_heads


def test_attention_by_position_is_counted_and_uniform_attention_is_not() -> None:
    """Uniform attention in float32 is the same in every text up to rounding, which is no effect of position."""
    for kind in ("encoder", "decoder"):
        flat = answer_heads("heads.positional", _flat(kind))
        assert flat.verdict == (
            "0 of 2 heads attend mostly by position (0 surely and 0 possibly, by each head's own 95 % interval). No "
            "head gives half of its attention to one offset (of at most 32 tokens) or to one position."
        )
        assert (flat.value, flat.interval) == (0.0, None), "a count of none has no interval"
    found = answer_heads("heads.positional", planted.heads_of(planted.subject_of(planted.copying())[1]))
    assert found.value == 2.0 and found.interval == (2.0, 2.0)
    assert "layer 1 head 1: previous token" in found.verdict and found.light == "good"


@pytest.mark.parametrize(("offset", "named"), [(20, True), (40, False)])
def test_offsets_beyond_those_that_are_counted_are_not_denied(offset: int, named: bool) -> None:
    length = 96
    weights = torch.zeros(9, 1, length, length)
    weights[:, 0, torch.arange(length), (torch.arange(length) - offset).clamp_min(0)] = 1.0
    sums = HeadSums(torch.ones(length, dtype=torch.bool))
    heads = torch.zeros(9, 1, length, 4)
    sums.add(ComputedAttention(torch.nn.Identity(), heads, heads, weights, weights, torch.ones_like(weights).bool()))
    verdict = answer_heads("heads.positional", sums.summarise()).verdict
    assert (f"layer 1 head 1: offset -{offset}" in verdict) == named
    assert ("No head gives half of its attention to one offset (of at most 32 tokens)" in verdict) == (not named)


def test_how_far_heads_attend() -> None:
    near = answer_heads("heads.distance", planted.heads_of(planted.subject_of(planted.previous_token(30.0))[1]))
    assert "Layer 1 attends less than half as far as uniform attention." in near.verdict
    far = answer_heads("heads.distance", _flat())
    assert "No layer attends less than half as far as uniform attention." in far.verdict
    assert far.value == pytest.approx(far.references[0].value, rel=1e-3)
    assert far.verdict.startswith("Layer 1 attends nearest, at a median over heads of")


def _flat(kind: str = "encoder") -> HeadStatistics:
    """A layer of uniform attention."""
    return planted.heads_of(planted.subject_of(planted.uniform(kind))[1])


def _compare(*layers: HeadStatistics) -> Finding:
    """How far the heads of several layers attend."""
    return MEASURES["heads.distance"].run(
        replace(Reading.without_text(Subject.of(planted.uniform())), head_statistics=[*layers])
    )


def _distant(distances: list[float], uniform: float) -> HeadStatistics:
    """A layer whose heads attend at these distances on every text, beside uniform attention at ``uniform``."""
    distance_NH = torch.tensor(distances).double().expand(9, -1)
    return replace(_flat(), distance_NH=distance_NH, uniform_distance=uniform)


@pytest.mark.parametrize(("distances", "median"), [([1.0, 3.0], 2.0), ([1.0, 2.0, 4.0, 9.0], 3.0), ([1, 2, 9], 2.0)])
def test_the_median_over_heads_is_the_middle_of_the_two_in_the_middle(distances: list[float], median: float) -> None:
    found = answer_heads("heads.distance", _distant(distances, 10.0))
    assert found.value == median and found.interval == (median, median)
    assert f"a median over heads of {median:.1f} tokens" in found.verdict


@pytest.mark.parametrize("local_first", [True, False])
def test_every_layer_is_compared_with_uniform_attention_under_its_own_mask(local_first: bool) -> None:
    """A local layer attends as far as it may, 2 tokens; a global one 6 of 20. All were compared with the first."""
    layers = [_distant([2.0, 2.0], 2.0), _distant([6.0, 6.0], 20.0)]
    found = _compare(*(layers if local_first else layers[::-1]))
    assert found.value == 2.0 and found.references[0].value == 2.0
    nearest = 2 if local_first else 1
    assert found.verdict.endswith(f"Layer {nearest} attends less than half as far as uniform attention.")


def test_a_layer_is_drawn_at_all_offsets_of_its_own_mask() -> None:
    figure = _compare(_flat("decoder"), _flat()).figure
    assert figure is not None
    assert [max(panel.marks[0].x) for panel in figure.panels] == [0, planted.LENGTH - 1]


def test_a_cell_of_a_grid_of_heads_has_the_name_by_which_all_figures_mark_it() -> None:
    """Layers and heads from 1, row by row: the script of a page finds the same head elsewhere by this name."""
    (mark,) = draw_head_grid(torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), "Share").panels[0].marks
    assert dict(zip(mark.names, [cell for row in mark.z for cell in row], strict=True)) == pytest.approx(
        {"layer 1 head 1": 0.1, "layer 1 head 2": 0.2, "layer 1 head 3": 0.3}
        | {"layer 2 head 1": 0.4, "layer 2 head 2": 0.5, "layer 2 head 3": 0.6}
    )


@torch.no_grad()
def _crossing(positions: bool) -> tuple[Subject, Capture]:
    """An encoder-decoder whose cross-attention knows positions alone, or random tokens alone."""
    position = PositionConfig("sinusoidal")
    sizes = {"vocab_size": VOCAB, "d_model": 32, "num_heads": 2, "d_ff": 8, "encoder_layers": 1, "decoder_layers": 1}
    torch.manual_seed(0)
    config = TransformerConfig(kind="encoder-decoder", encoder=position, decoder=position, tying="none", **sizes)
    model: Any = Transformer(config).eval()
    for stack in (model.encoder, model.decoder):
        if positions:
            stack.input.tokens.weight.zero_()
        else:
            stack.input.register_forward_pre_hook(lambda module, args: (args[0], torch.zeros_like(args[1])))
    model.decoder.blocks[0].attention.out.weight.zero_()
    model.decoder.blocks[0].cross.q.weight.mul_(8)
    subject = Subject.of(model, side="decoder")
    windows, source = planted.ids(48)[:, :16], planted.ids(48, seed=1)[:, :9]
    return subject, capture(subject.model, subject.forward, windows, source_NS=source)


def test_cross_attention_goes_by_position_where_it_knows_nothing_else() -> None:
    found = answer("heads.across", *_crossing(positions=True))
    assert found.verdict.startswith("Positions alone explain 100 % of the variance of the attention over the source")
    none = answer("heads.across", *_crossing(positions=False))
    assert none.verdict.startswith("Whether positions alone have an effect on the attention over the source is undec")
    assert none.interval is not None and none.interval[0] <= 0 <= none.interval[1]


def test_the_head_that_goes_by_position_most_is_named_with_what_it_puts_near() -> None:
    found = answer("heads.across", *_crossing(positions=True))
    rows = [dict(zip(found.table.columns, row, strict=True)) for row in found.table.rows]
    most = max(rows, key=lambda row: row["by place"])
    near, uniform = (format_percent(most[name]) for name in ("attention within 2 places", "uniform"))
    assert found.verdict.endswith(
        f"most in layer 1 head {most['head']} (100 %), which puts {near} of its attention within 2 positions of the "
        f"target's own number (uniform attention {uniform})."
    )


def test_an_encoder_has_no_cross_attention() -> None:
    subject = Subject.of(tiny("bart"), side="encoder")
    recorded = capture(subject.model, subject.forward, torch.randint(3, TINY_VOCAB, (8, 12)))
    found = answer("heads.across", subject, recorded)
    assert found.light == "skip" and found.verdict.startswith("An encoder reads its own text alone; only a decoder (")


def test_a_decoder_whose_cross_attention_is_not_seen_is_not_taken_for_an_encoder() -> None:
    subject, recorded = _crossing(positions=True)
    recorded.cross_modules, recorded.unread_reason = [], "the attention of Odd is not computed as logits"
    found = answer("heads.across", subject, recorded)
    assert (found.light, found.verdict) == ("skip", "Not measured: the attention of Odd is not computed as logits.")
    recorded.unread_reason = ""
    unseen = answer("heads.across", subject, recorded).verdict
    assert unseen == "Not measured: no cross-attention over the source was seen."
    encoder = Subject.of(subject.encoder_decoder, side="encoder")
    alone = capture(encoder.model, encoder.forward, planted.ids(8))
    assert answer("heads.across", encoder, alone).verdict.startswith("An encoder reads its own text alone")
