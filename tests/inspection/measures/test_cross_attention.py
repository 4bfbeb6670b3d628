"""Cross-attention goes by position where it knows nothing else, and does not where it knows tokens alone."""

from __future__ import annotations

from typing import Any

import torch

from clockhands.inspection.measures.cross_attention import CrossStatistics, _describe
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.models.subject import Subject

from .. import planted
from ..planted import VOCAB, answer
from ..tiny import VOCAB as TINY_VOCAB
from ..tiny import tiny


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
    assert none.verdict.startswith("No effect of positions alone on the attention over the source was found")
    assert none.interval is not None and none.interval[0] <= 0 <= none.interval[1]


def test_the_head_that_goes_by_position_most_is_named_with_what_it_puts_near() -> None:
    layers = [
        CrossStatistics(torch.tensor(shares), torch.zeros(8, 2), torch.tensor(near), near_uniform=0.25)
        for shares, near in (([0.1, 0.2], [0.3, 0.3]), ([0.7, 0.1], [0.9, 0.2]))
    ]
    assert _describe(0.3, (0.1, 0.5), None, layers).endswith(
        "(95 % interval 10 % to 50 %); most in layer 2 head 1 (70 %), which puts 90 % of its attention within 2 "
        "positions of the target's own number (uniform attention 25 %)."
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
