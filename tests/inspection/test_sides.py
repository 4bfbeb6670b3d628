"""Both stacks of an encoder-decoder: read as the whole model computes them, split exactly, and what looks across."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.errors import UsageError
from clockhands.inspection import Subject, inspect
from clockhands.inspection.measures.heads import MOST_APART, _read_cross_attention
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.reading import _find_influence
from clockhands.inspection.reading.windows import MOST_PIECE_CHARACTERS, _cut_pair_windows, choose_windows
from clockhands.model import PositionConfig, TokenBatch
from clockhands.report import put_side_by_side
from clockhands.shapes import Tensor

from .measures.readings import check_terms
from .measures.test_measure import check_declared
from .tiny import LAYERS, draw_ids, own, tiny
from .words import make_splitter

BOTH = "encoder-decoder"
FAMILIES = ("bart", "marian", "t5")


def _sources() -> Tensor:
    """Sources of unequal length: -1 where nothing stands."""
    source = draw_ids(length=9, seed=1)
    source[::2, 6:] = -1
    return source


def _model(name: str) -> Any:
    return own(kind=BOTH) if name == "own" else tiny(name)


def _captured(subject: Subject) -> Capture:
    return capture(subject.model, subject.forward, draw_ids(), source_NS=_sources(), batch=4)


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_the_decoder_is_read_as_the_whole_model_computes_it(name: str) -> None:
    """Hidden states, self-attention and cross-attention against the whole model, called from outside."""
    subject = Subject.of(tiny(name), side="decoder")
    recorded = _captured(subject)
    assert _find_influence(subject.forward, recorded.ids_NT, source_NS=recorded.source_NS).causal
    whole, source = tiny(name), _sources()
    for part in whole.modules():
        if isinstance(part, hf.PreTrainedModel):  # in older versions the stacks of T5 do not follow the whole
            part.set_attn_implementation("eager")
    told = whole(
        input_ids=source.clamp(min=0), attention_mask=(source >= 0).long(), decoder_input_ids=draw_ids(),
        decoder_attention_mask=torch.ones_like(draw_ids()), output_hidden_states=True, output_attentions=True,
    )  # fmt: skip
    for ours, theirs in zip(recorded.hidden, told.decoder_hidden_states, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert len(recorded.layers) == len(recorded.cross_modules) == LAYERS
    for layer, theirs in zip(recorded.layers, told.decoder_attentions, strict=True):
        for rows, call in layer.replay_all():
            torch.testing.assert_close(call.weights_BHST, theirs[rows], atol=1e-6, rtol=1e-5)
    near_LH = _read_cross_attention(subject, recorded)[2]
    for near_H, theirs in zip(near_LH, told.cross_attentions, strict=True):
        near = (torch.arange(12)[:, None] - torch.arange(9)).abs() <= MOST_APART
        torch.testing.assert_close(near_H, (theirs.double() * near).sum(-1).mean((0, 2)), atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_our_own_decoder_is_read_as_the_whole_model_computes_it() -> None:
    model, source, states = own(kind=BOTH), _sources(), []
    memory = model.encode(TokenBatch(source.clamp(min=0), mask_BT=source >= 0))
    model.decode(TokenBatch(draw_ids()), memory, layer_states=states)
    recorded = _captured(Subject.of(model, side="decoder"))
    torch.testing.assert_close([*recorded.hidden], states, atol=1e-5, rtol=1e-5)
    assert len(recorded.layers) == len(recorded.cross_modules) == 2


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("name", [*FAMILIES, "own"])
def test_the_terms_sum_to_the_logits_on_either_side(name: str, side: Any) -> None:
    subject = Subject.of(_model(name).double(), side=side)
    recorded = capture(subject.model, subject.forward, draw_ids(), batch=4) if side == "encoder" else _captured(subject)
    for layer in recorded.layers:
        check_terms(layer, 1e-10)


# Marian is BART with a table of sinusoids: its own table is read above.
@pytest.mark.parametrize("name", ["bart", pytest.param("marian", marks=pytest.mark.exhaustive), "t5", "own"])
def test_a_page_for_the_decoder_and_one_for_both(name: str) -> None:
    sides: tuple[Any, Any] = "encoder", "decoder"
    one, other = (inspect(_model(name), texts=draw_ids(12, 20), side=side, name=name, control=False) for side in sides)
    for item in other:
        check_declared(item)
    assert other.facts["model"] == f"{name} (decoder)"
    assert other.facts["attention"] == "each token sees those before it"
    assert one.facts["attention"] == "every token sees all others"
    assert other.facts["text"] == "12 windows of 20 tokens, with the same text as source"
    assert "Stack" not in str(other.facts["class"])
    assert other["logits.layers"].details["error"] < 1e-5
    assert (one["heads.across"].light, other["heads.across"].light) == ("skip", "info")
    assert "Difference B − A" in put_side_by_side(one, other)["logits.layers"].verdict


@pytest.mark.parametrize(("model", "side"), [(tiny("gpt2"), "decoder"), (own(kind="decoder"), "encoder")])
def test_a_side_that_is_not_there(model: Any, side: Any) -> None:
    with pytest.raises(UsageError, match=f"mine is no encoder-decoder, so it has no {side} side"):
        Subject.of(model, name="mine", side=side)


def test_words_that_the_encoder_does_not_know() -> None:
    subject = Subject.of(own(kind=BOTH, source_vocab_size=20, tying="none"), side="decoder")
    with pytest.raises(UsageError, match="knows 20 tokens and was given the id"):
        subject.forward(draw_ids())


LETTERS = make_splitter(lambda text: [*map(ord, text)])


def test_windows_of_translations_stand_beside_what_they_translate() -> None:
    pairs = [(f"s{number}", f"t{number}") for number in range(10, 58)]
    found = _cut_pair_windows(LETTERS, LETTERS, pairs, length=8, count=9, start=0)
    assert found.ids_NT.shape == (9, 8)
    letters = ["".join(map(chr, row[2:])) for row in found.ids_NT.tolist()]
    assert letters[0] == "t10t11", "after the decoder's first token and the tokenizer's own"
    assert found.ids_NT[0, :2].tolist() == [0, 1]
    assert found.source_NS is not None
    assert "".join(map(chr, found.source_NS[0][found.source_NS[0] >= 3].tolist())) == "s10s11"
    assert found.ordinary_T.tolist() == [False, False, *[True] * 6]


def _split_words(text: str) -> list[int]:
    """A number stands for itself, all other words for 3."""
    return [int(word) if word.isdigit() else 3 for word in text.split()]


def test_a_text_given_to_two_tokenizers_stays_beside_itself_to_the_end() -> None:
    """Letters and words of one text: every window of the decoder stands beside the words that it is cut from."""
    subject = Subject.of(own("none", BOTH), LETTERS, side="decoder")
    subject.source_tokenizer = make_splitter(_split_words)
    lines = [" ".join(str(1000 + 10 * line + word) for word in range(4)) for line in range(60)]
    long = " ".join(str(number) for number in range(5000, 5400))
    found = choose_windows(subject, ["\n\n".join(lines), long], 64, 200)
    assert found.source_NS is not None
    assert len(found.ids_NT) > 30
    for written, read in zip(found.ids_NT[:, found.ordinary_T].tolist(), found.source_NS.tolist(), strict=True):
        words = "".join(str(number) for number in read if number > 2)
        assert words.startswith("".join(map(chr, written)).replace(" ", ""))
        assert len(words) < 64 + MOST_PIECE_CHARACTERS


def test_a_source_is_cut_to_what_the_encoder_has_positions_for() -> None:
    """Letters read what words write: ten times as many tokens as the encoder's table has rows."""
    core = own("none", BOTH, vocab_size=128, encoder=PositionConfig("learned", {"max_length": 20}))
    subject = Subject.of(core, make_splitter(_split_words), side="decoder")
    subject.source_tokenizer, subject.training_pairs = LETTERS, [("a b c d e f g h i", "5 6 7")] * 90
    found = choose_windows(subject, None, 24, 9)
    assert found.source_NS is not None and found.source_NS.shape[1] == 20
    assert found.source_NS[0, 0] == 1 and found.source_NS[0, -1] == 2, "the tokenizer's own tokens stay"
    assert len(subject.forward(found.ids_NT, source_BS=found.source_NS)) == 1 + len(core.decoder.blocks)
