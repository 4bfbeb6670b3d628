"""Sentences are read, swapped, refused and split as they should be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from clockhands.data import train_tokenizer
from clockhands.errors import UsageError
from clockhands.inspection import inspect
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.reading.attention_hooks import ComputedAttention, listen
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.sentences import (
    SENTENCE_TERMS,
    check_sentence_lengths,
    encode_sentences,
    make_comparison_rows,
    make_english_swaps,
    make_text_swaps,
    split_sentence,
    swap_words,
)
from clockhands.inspection.reading.windows import Windows, decode_tokens
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.models.subject import Subject
from tests.inspection.words import WORDS, make_splitter, make_tokenizer

from ..tiny import tiny

SENTENCES = ["Tom saw Anna and heard Peter", "the king paid my sister", "Tom followed a wolf and a dog"] * 3


BYTES = make_splitter(lambda text: [3 + byte for byte in text.encode()])


def _make_decoder(source_vocab_size: int, **encoder: object) -> Subject:
    """A decoder that reads words, whose encoder reads bytes, or as many ids as ``source_vocab_size``."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 16, "encoder_layers": 1, "decoder_layers": 1, "tying": "none"}
    position = PositionConfig("learned", encoder) if encoder else PositionConfig("sinusoidal")
    config = TransformerConfig(vocab_size=40, source_vocab_size=source_vocab_size, encoder=position, **sizes)
    return Subject.of(Transformer(config), make_tokenizer(), side="decoder")


@pytest.mark.parametrize("is_english", [False, True])
def test_the_encoder_reads_the_sentence_before_the_swap_by_its_own_tokenizer(is_english: bool) -> None:
    subject = _make_decoder(300)
    subject.source_tokenizer = BYTES
    swaps = [*(make_english_swaps(subject) if is_english else make_text_swaps(subject, [*SENTENCES, "Tom bit"]) or ())]
    assert swaps and all(swap.source == BYTES(swap.text)["input_ids"] for swap in swaps)
    assert {swap.unit for swap in swaps} == ({"word"} if is_english else {"word", "token"})


def test_a_sentence_that_is_longer_than_the_encoder_reads_is_left_out() -> None:
    subject = _make_decoder(300, max_length=30)
    subject.source_tokenizer = BYTES
    kept = [swap.text for swap in make_text_swaps(subject, SENTENCES) or ()]
    assert kept == [text for text in SENTENCES if len(text) + 2 <= 30] and len(kept) == 6


def test_a_sentence_of_a_reader_that_is_longer_than_the_encoder_reads_is_refused_by_its_name() -> None:
    subject = _make_decoder(300, max_length=20)
    subject.source_tokenizer = BYTES
    assert encode_sentences(subject, ["Tom saw Anna"])[0].source == BYTES("Tom saw Anna")["input_ids"]
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


def subject() -> Subject:
    return Subject.of(tiny("gpt2"), make_tokenizer())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  ", "--sentence is empty; give a sentence of at least two tokens"),
        ("Tom", "--sentence 'Tom' is one token to the model's tokenizer; at least two are needed"),
        ("xylo phone", "--sentence 'xylo phone' holds no token that the model's tokenizer knows"),
        (
            " ".join(["Tom"] * 65),
            "has 65 tokens, special ones included, and the model reads at most 64; give a shorter",
        ),
        (" ".join(["Tom"] * 50), "has 50 tokens, special ones included; at most 48 can be read off a picture"),
    ],
)
def test_a_sentence_that_cannot_be_shown_is_refused_before_the_model_runs(text: str, said: str) -> None:
    opened = subject()
    opened.model.register_forward_pre_hook(lambda module, args: pytest.fail("the model ran"))
    with pytest.raises(UsageError) as caught:
        inspect(opened, sentences=["Tom bit a dog", text])
    assert said in str(caught.value)


def test_too_many_sentences_and_a_model_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(UsageError, match="--sentence was given 9 times; a page shows at most 8 sentences"):
        encode_sentences(subject(), ["Tom bit a dog"] * 9)
    with pytest.raises(UsageError, match="--sentence needs a tokenizer"):
        encode_sentences(Subject.of(tiny("gpt2")), ["Tom bit a dog"])


def test_a_sentence_longer_than_the_windows_is_refused() -> None:
    (sentence,) = encode_sentences(subject(), ["Tom bit a dog"])
    windows = Windows(torch.zeros(8, 3, dtype=torch.long), torch.ones(3, dtype=torch.bool))
    with pytest.raises(UsageError, match=r"has 4 tokens, and the windows of text .* have 3; give a greater --length"):
        check_sentence_lengths([sentence], windows)


def test_words_change_places_and_punctuation_stays() -> None:
    assert swap_words("Tom bit a dog.", 0, 3) == "dog bit a Tom."
    assert swap_words('He said: "Tom!" - so', 2, 4) == 'He said: "so!" - Tom'


def test_the_rows_are_the_sentence_and_texts_cut_to_it() -> None:
    (sentence,) = encode_sentences(subject(), ["Tom bit a dog"])
    ids_NT = torch.arange(60).reshape(10, 6)
    ordinary_T = torch.tensor([False, True, True, True, True, True])
    rows_NT, sources = make_comparison_rows(sentence, Windows(ids_NT, ordinary_T), 8)
    assert rows_NT.shape == (9, 4) and sources is None
    assert rows_NT[[0, 1, -1]].tolist() == [sentence.ids, [1, 2, 3, 4], [43, 44, 45, 46]]
    assert sentence.tokens == ["Tom", "bit", "a", "dog"]


def test_tokens_of_bytes_are_shown_as_characters() -> None:
    text = ["ein café für Öl und übel"] * 50
    tokenizer = train_tokenizer(text, kind="bpe", vocabulary=280, task="language modelling")
    byte_level = "ByteLevel" in str(tokenizer.backend_tokenizer.decoder)
    shown = decode_tokens(tokenizer, tokenizer("ein café für Öl", add_special_tokens=False)["input_ids"])
    assert byte_level and "".join(shown) == "eincaféfürÖl"
    alphabet = Tokenizer(models.BPE({letter: index for index, letter in enumerate(["c", "Ã", "©"])}, []))
    alphabet.pre_tokenizer, alphabet.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    half = PreTrainedTokenizerFast(tokenizer_object=alphabet)
    assert decode_tokens(half, [0, 1, 2]) == ["c", "�", "�"]
    assert decode_tokens(make_tokenizer(), [7, 8]) == ["Tom", "bit"]


WINDOWS = Windows(
    torch.randint(7, 7 + len(WORDS), (12, 10), generator=torch.Generator().manual_seed(0)),
    torch.ones(10, dtype=torch.bool),
)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5", "deberta-v2", "bloom"])
def test_terms_add_up_to_the_logits_of_the_sentence_read_alone(name: str) -> None:
    """The independent truth: the model run on the sentence and nothing else, its logits caught on the way."""
    subject = Subject.of(tiny(name), make_tokenizer())
    (sentence,) = encode_sentences(subject, ["Tom bit a dog and the king"])
    layers = split_sentence(subject, sentence, WINDOWS)
    calls: list[ComputedAttention] = []
    with torch.no_grad(), listen(subject.model, calls.append):
        subject.forward(torch.tensor([sentence.ids]))
    assert len(layers) == len(calls) == 2
    for layer, call in zip(layers, calls, strict=True):
        torch.testing.assert_close(layer.weights_HST, call.weights_BHST[0], atol=1e-5, rtol=1e-4)
        assert torch.allclose(layer.shares_Ht.sum(-1), torch.ones(4, dtype=torch.float64), atol=1e-4)
        assert bool(layer.shares_Ht[:, -1].abs().max() > 1e-6) == (name == "deberta-v2")


def test_a_model_without_positions_has_words_only_and_one_with_nothing_but_distance_has_both() -> None:
    """Without position rows, all that is left by position is what the other texts' means happen to be."""
    model = tiny("gpt2")
    with torch.no_grad():
        model.wpe.weight.zero_()
        words_only = split_sentence(Subject.of(model, make_tokenizer()), *_ask(model))[0].pooled_t
        model.wte.weight.zero_()
        model.wpe.weight.normal_(0, 1.0)
        positions_only = split_sentence(Subject.of(model, make_tokenizer()), *_ask(model))[0].pooled_t
    names = [*SENTENCE_TERMS]
    assert float(positions_only[names.index("position alone")]) == pytest.approx(1.0, abs=1e-6)
    assert float(words_only[names.index("token alone")]) > 0.4
    assert float(words_only[names.index("position alone")]) < 0.2


def _ask(model: torch.nn.Module):
    return encode_sentences(Subject.of(model, make_tokenizer()), ["Tom bit a dog"])[0], WINDOWS
