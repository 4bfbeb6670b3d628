"""Order matters to the next token where the last one determines it."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf

from clockhands.findings import Finding
from clockhands.inspection.measures.next_token import _judge, compute_losses, find_prefix_lengths
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.model import Transformer
from clockhands.models.subject import Subject

from .. import planted
from ..tiny import VOCAB as TINY_VOCAB
from ..tiny import tiny


def _bigram(kind: str) -> Transformer:
    """Writes the successor (id + 7) of the last token, or of no token in particular: all of those before it alike."""
    model = planted.alone("decoder") if kind == "bigram" else planted.uniform("decoder", keeps=False)
    core: Any = model
    with torch.no_grad():
        core.decoder.input.tokens.weight.copy_(torch.randn(planted.VOCAB, 32) / 32**0.5)
        core.output.weight.copy_(3 * core.decoder.input.tokens.weight.roll(7, dims=0))
        if kind == "bigram":  # so little of the others that they are seen, and tell nothing
            core.decoder.blocks[0].attention.out.weight.copy_(1e-3 * torch.eye(32))
    return model


def _counting() -> torch.Tensor:
    """Every token id is the one before it plus 7."""
    start = torch.arange(40)[:, None] * 5
    return (start + 7 * torch.arange(planted.LENGTH)) % planted.VOCAB


def _loss(model: Transformer, ids: torch.Tensor) -> Finding:
    subject = Subject.of(model)
    recorded = Capture(ids, [], [], torch.ones(ids.shape[1], dtype=torch.bool))
    return planted.answer("cause.loss", subject, recorded)


def test_the_loss_rises_where_the_last_token_determines_the_next() -> None:
    found = _loss(_bigram("bigram"), _counting())
    assert found.light == "good" and found.value > 2  # type: ignore[operator]
    assert found.verdict.endswith("Order helps to predict it.")
    assert found.interval is not None and found.interval[0] > 0


def test_the_loss_is_the_same_where_all_tokens_before_it_count_alike() -> None:
    found = _loss(_bigram("bag"), _counting())
    assert (
        found.verdict
        == "The next token is predicted alike in any order of the tokens before it: the model ignores order."
    )
    assert found.light == "bad"


def test_rounding_is_no_effect_of_order() -> None:
    """Its bound was that of relative squared changes, which a loss in float32 exceeds by rounding alone."""
    ordered = torch.rand(32, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 5
    rounded = ordered + 1e-5 * torch.rand(32, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sentence, light = _judge(ordered, rounded, 4e-6, 6e-6)
    assert sentence.endswith("the model ignores order.") and light == "bad"
    sentence, light = _judge(ordered, ordered + 0.01, 0.005, 0.015)
    assert sentence.endswith("Order helps to predict it.") and light == "good"


def test_it_is_undecided_where_order_says_nothing_of_the_next_token() -> None:
    """Random tokens: what order changes in the prediction is for the better as often as for the worse."""
    found = _loss(_bigram("bigram"), planted.ids(40))
    assert found.verdict.endswith("Whether order helps is undecided.")
    assert found.interval is not None and found.interval[0] < 0 < found.interval[1]


def test_the_loss_is_that_of_the_model_with_its_output_layer() -> None:
    """Against the cross-entropy that transformers computes itself on the whole windows."""
    torch.manual_seed(0)
    config = hf.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=1
    )
    model = hf.GPT2LMHeadModel(config).eval()
    ids = torch.randint(50, (6, 12), generator=torch.Generator().manual_seed(0))
    subject = Subject.of(model)
    recorded = Capture(ids, [], [], torch.ones(12, dtype=torch.bool))
    pair = compute_losses(subject, recorded)
    assert pair is not None
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    for column, end in enumerate(find_prefix_lengths(recorded)):
        theirs = torch.nn.functional.cross_entropy(logits[:, end - 1].double(), ids[:, end], reduction="none")
        torch.testing.assert_close(pair[0][:, column], theirs, atol=1e-6, rtol=1e-6)


def test_models_that_have_no_next_token() -> None:
    subject, recorded = planted.subject_of(planted.uniform())
    found = planted.answer("cause.loss", subject, recorded)
    assert found.light == "skip" and "no next token" in found.verdict
    bare = hf.GPT2Model(hf.GPT2Config(vocab_size=planted.VOCAB, n_embd=16, n_layer=1, n_head=2, n_positions=32))
    subject, recorded = planted.subject_of(bare)
    found = planted.answer("cause.loss", subject, recorded)
    assert found.light == "skip" and "without its output layer" in found.verdict
    subject = Subject.of(tiny("bart"), side="decoder")
    recorded = capture(subject.model, subject.forward, torch.randint(3, TINY_VOCAB, (8, 12)))
    verdict = planted.answer("cause.loss", subject, recorded).verdict
    assert verdict.startswith("It is the decoder of an encoder-decoder"), "it does write from left to right"


def test_the_loss_falls_where_the_last_token_misleads() -> None:
    """A bigram model, and texts of one token each but for the last before every prediction: the others predict it."""
    ids = (torch.arange(40)[:, None] + 20).repeat(1, planted.LENGTH)
    ends = find_prefix_lengths(Capture(ids, [], [], torch.ones(planted.LENGTH, dtype=torch.bool)))
    for end in ends:
        ids[:, end - 1], ids[:, end] = ids[:, 0] + 60, ids[:, 0] + 7
    found = _loss(_bigram("bigram"), ids)
    assert found.verdict.endswith("It is predicted better without their order.") and found.light == "warn"
    assert found.interval is not None and found.interval[1] < 0
