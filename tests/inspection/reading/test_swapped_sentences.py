"""What the encoder reads of a decoder's sentences: ids of the encoder's own tokenizer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clockhands.errors import UsageError
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.sentences import encode_sentences
from clockhands.inspection.reading.swapped_sentences import make_english_swaps, make_text_swaps
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.models.subject import Subject
from tests.inspection.words import make_tokenizer

SENTENCES = ["Tom saw Anna and heard Peter", "the king paid my sister", "Tom followed a wolf and a dog"] * 3


class Bytes:
    """A tokenizer of bytes, with a token before and one after a text."""

    def __call__(self, text: str, add_special_tokens: bool = True, **_: object) -> dict[str, list[int]]:
        ids = [3 + byte for byte in text.encode()]
        return {"input_ids": [1, *ids, 2] if add_special_tokens else ids}


def _make_decoder(source_vocab_size: int, **encoder: object) -> Subject:
    """A decoder that reads words, whose encoder reads bytes, or as many ids as ``source_vocab_size``."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 16, "encoder_layers": 1, "decoder_layers": 1, "tying": "none"}
    position = PositionConfig("learned", encoder) if encoder else PositionConfig("sinusoidal")
    config = TransformerConfig(vocab_size=40, source_vocab_size=source_vocab_size, encoder=position, **sizes)
    return Subject.of(Transformer(config), make_tokenizer(), side="decoder")


@pytest.mark.parametrize("is_english", [False, True])
def test_the_encoder_reads_the_sentence_before_the_swap_by_its_own_tokenizer(is_english: bool) -> None:
    """It read the decoder's ids, which are other tokens of its vocabulary, or none."""
    subject = _make_decoder(300)
    subject.source_tokenizer = Bytes()
    swaps = [*(make_english_swaps(subject) if is_english else make_text_swaps(subject, [*SENTENCES, "Tom bit"]) or ())]
    assert swaps and all(swap.source == Bytes()(swap.text)["input_ids"] for swap in swaps)
    assert {swap.unit for swap in swaps} == ({"word"} if is_english else {"word", "token"})


def test_a_sentence_that_is_longer_than_the_encoder_reads_is_left_out() -> None:
    subject = _make_decoder(300, max_length=30)
    subject.source_tokenizer = Bytes()
    kept = [swap.text for swap in make_text_swaps(subject, SENTENCES) or ()]
    assert kept == [text for text in SENTENCES if len(text) + 2 <= 30] and len(kept) == 6


def test_a_sentence_of_a_reader_that_is_longer_than_the_encoder_reads_is_refused_by_its_name() -> None:
    subject = _make_decoder(300, max_length=20)
    subject.source_tokenizer = Bytes()
    assert encode_sentences(subject, ["Tom saw Anna"])[0].source == Bytes()("Tom saw Anna")["input_ids"]
    with pytest.raises(UsageError, match="--sentence 'Tom followed a wolf' has 21 tokens as a source, and the encoder"):
        encode_sentences(subject, ["Tom followed a wolf"])


def test_two_vocabularies_do_not_stop_the_measure() -> None:
    """The encoder knows fewer tokens than the decoder: its ids raised an error in the middle of the measurement."""
    subject = _make_decoder(8)
    subject.source_tokenizer = lambda text: {"input_ids": [1, *(3 + len(word) % 5 for word in text.split()), 2]}
    found = MEASURES["cause.swap"].run(replace(Reading.without_text(subject), texts=SENTENCES))
    assert found.verdict.startswith("In 9 sentences of the given text, swapping two words changes the mean")


def test_without_a_tokenizer_of_sources_the_encoder_reads_what_the_decoder_reads() -> None:
    assert {swap.source for swap in make_english_swaps(_make_decoder(40))} == {None}
