"""Sentences with two words swapped: built-in ones, those of a text, and those that a reader asks about.

Of the last also the attention, head by head, and its logits in terms: token or position of query and of key. In names
of tensors ``t`` are ``SENTENCE_TERMS``, ``N`` other texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch

from clockhands.errors import UsageError
from clockhands.inspection.reading.capture import capture
from clockhands.inspection.reading.logit_split import (
    DATA_DEPENDENT,
    POSITIONAL,
    TERM_GROUPS,
    TERMS,
    centre_logits,
    split_first_text,
    split_logits,
)
from clockhands.inspection.reading.windows import Windows, check_tokenizer, decode_tokens, encode_text
from clockhands.models.subject import Subject
from clockhands.pretrained import encode_bare, find_special_tokens
from clockhands.shapes import Bool, Float, Int, Tensor

NOUNS = ("Tom", "a dog", "Anna", "the king", "my sister", "a wolf", "the doctor", "Peter")
VERBS = ("bit", "saw", "followed", "paid", "heard", "forgot")
"""Subjects, objects and verbs of the built-in sentences, such as "Tom bit a dog"."""
LEAST_WORDS, MOST_WORDS = 4, 20
"""Words of a sentence in which two words are swapped: at least so many and at most so many."""


MOST_LOOKED_AT = 4096
"""Sentences among which those to swap are looked for: made text is written as it is read, which takes time."""


@dataclass(frozen=True)
class Swap:
    """A sentence before and after two of its words changed places: token ids and texts, and a decoder's source ids.

    ``unit``: what changed places: two words, or the first and the last token.
    """

    before: list[int]
    after: list[int]
    text: str
    swapped: str
    source: list[int] | None = None
    unit: Literal["word", "token"] = "word"


def make_english_swaps(subject: Subject) -> Iterator[Swap]:
    """Yield built-in English sentences with subject and object swapped; none is longer than the model reads."""
    for verb in VERBS:
        for a, b in zip(NOUNS[0::2], NOUNS[1::2], strict=True):
            first, second = f"{a} {verb} {b}.", f"{b} {verb} {a}."
            before, after = encode_text(subject, first)[0], encode_text(subject, second)[0]
            source = _encode_source(subject, first)
            if _fits(subject, source, before, after):
                yield Swap(before, after, first, second, source)


def make_text_swaps(subject: Subject, texts: Sequence[str] | None) -> Iterator[Swap] | None:
    """Return sentences of ``texts``, or of the training text, with two words swapped; None if there is neither."""
    chosen = texts if texts is not None else subject.training_texts
    if chosen is not None:
        lines = (line.strip() for text in chosen for line in text.split("\n"))
        return _list_swaps(subject, ((None, line) for line in lines if line))
    return None if subject.training_pairs is None else _list_swaps(subject, subject.training_pairs)


def _list_swaps(subject: Subject, sentences: Iterable[tuple[str | None, str]]) -> Iterator[Swap]:
    """Yield sentences with two words swapped, then those that are too short for that with two tokens swapped."""
    short = []
    for source, text in islice(sentences, MOST_LOOKED_AT):
        words = text.split()
        if len(words) < LEAST_WORDS:
            short.append((source, text))
        if LEAST_WORDS <= len(words) <= MOST_WORDS:
            i, j = _find_two_longest(words)
            words[i], words[j] = words[j], words[i]
            other = " ".join(words)
            before, after = encode_text(subject, text)[0], encode_text(subject, other)[0]
            source_ids = _encode_source(subject, source or text)
            # Words that the tokenizer does not know have one and the same id.
            if before != after and _fits(subject, source_ids, before, after):
                yield Swap(before, after, text, other, source_ids)
    before, after = find_special_tokens(subject.tokenizer, subject.start_token)
    for source, text in short:
        ids, source_ids = encode_bare(subject.tokenizer, text), _encode_source(subject, source or text)
        whole = [*before, *ids, *after]
        if len(ids) >= 2 and ids[0] != ids[-1] and _fits(subject, source_ids, whole):
            other_ids = [ids[-1], *ids[1:-1], ids[0]]
            swapped = str(subject.tokenizer.decode(other_ids))
            yield Swap(whole, [*before, *other_ids, *after], text, swapped, source_ids, "token")


def _fits(subject: Subject, source: Sequence[int] | None, *texts: Sequence[int]) -> bool:
    """Tell whether the model reads as many tokens as each of these texts has, and its encoder as many as the source."""
    limits = [(subject.max_length, text) for text in texts] + [(subject.max_source_length, source or ())]
    return all(limit is None or len(ids) <= limit for limit, ids in limits)


def _encode_source(subject: Subject, source: str) -> list[int] | None:
    """Return the token ids of a source, special tokens included; None where no tokenizer of sources is known.

    The encoder then reads the ids that the decoder reads.
    """
    return list(subject.source_tokenizer(source)["input_ids"]) if subject.source_tokenizer is not None else None


def _find_two_longest(words: Sequence[str]) -> tuple[int, int]:
    """Return the indices of the two longest different words, of two equal ones if all are; words of letters first."""
    order = sorted(range(len(words)), key=lambda index: (not words[index].isalpha(), -len(words[index]), index))
    return order[0], next((index for index in order[1:] if words[index] != words[order[0]]), order[1])


MOST_SENTENCES = 8
"""Sentences that one page shows."""
MOST_TOKENS = 48
"""Tokens of a sentence whose attention can still be read off a picture."""


@dataclass(frozen=True)
class Sentence:
    """One sentence as a model reads it.

    Attributes:
        text: as it was given.
        ids: token ids, with the special tokens that its tokenizer puts around a text.
        tokens: each token as text.
        ordinary_T: False at special tokens.
        source: the ids that the encoder reads for a decoder: the sentence itself; None for other models.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    ordinary_T: Bool[Tensor, " T"]
    source: list[int] | None = None


def encode_sentences(subject: Subject, texts: Sequence[str], *, option: str = "--sentence") -> list[Sentence]:
    """Return the sentences as this model reads them; ``option`` is the name of the option in the messages.

    Raises UsageError for the first that is empty, has one token, no token that its tokenizer knows, or more tokens
    than the model reads or a picture shows; for too many sentences; and for a model without a tokenizer. Raises
    DataError for a token that the model does not know.
    """
    if not texts:
        return []
    if len(texts) > MOST_SENTENCES:
        raise UsageError(f"{option} was given {len(texts)} times; a page shows at most {MOST_SENTENCES} sentences")
    check_tokenizer(subject, f"{option} needs")
    sentences, unknown = [], getattr(subject.tokenizer, "unk_token_id", None)
    for text in texts:
        if not text.strip():
            raise UsageError(f"{option} is empty; give a sentence of at least two tokens")
        ids, ordinary_T = encode_text(subject, text)
        bare, said = torch.tensor(ids)[ordinary_T].tolist(), f"{option} {text[:40]!r} has {len(ids)} tokens, "
        if len(bare) < 2:
            raise UsageError(
                f"{option} {text!r} is {'one token' if bare else 'no token'} to the model's tokenizer; at least two "
                "are needed for anything to have an order"
            )
        if subject.max_length is not None and len(ids) > subject.max_length:
            raise UsageError(
                f"{said}special ones included, and the model reads at most {subject.max_length}; give a shorter one"
            )
        if len(ids) > MOST_TOKENS:
            raise UsageError(
                f"{said}special ones included; at most {MOST_TOKENS} can be read off a picture of attention: give a "
                "shorter one"
            )
        if unknown is not None and set(bare) == {unknown}:
            raise UsageError(
                f"{option} {text!r} holds no token that the model's tokenizer knows; give one of the language it was "
                "trained on"
            )
        subject.check_ids(torch.tensor([ids]))
        source, most = None, subject.max_source_length
        if subject.reads_source:
            source = list((subject.source_tokenizer or subject.tokenizer)(text)["input_ids"])
            if most is not None and len(source) > most:
                raise UsageError(
                    f"{option} {text[:40]!r} has {len(source)} tokens as a source, and the encoder reads at most "
                    f"{most}; give a shorter one"
                )
        sentences.append(Sentence(text, ids, decode_tokens(subject.tokenizer, ids), ordinary_T, source))
    return sentences


def check_sentence_lengths(sentences: Sequence[Sentence], windows: Windows) -> None:
    """Raise UsageError for a sentence longer than the windows of text, from which the means by position come.

    Only ``inspect`` reads sentences beside windows, so that the message names its option.
    """
    most = int(windows.ordinary_T.sum())
    for sentence in sentences:
        count = int(sentence.ordinary_T.sum())
        if count > most:
            raise UsageError(
                f"--sentence {sentence.text!r} has {count} tokens, and the windows of text that it is compared with "
                f"have {most}; give a greater --length (length=...)"
            )


def make_comparison_rows(
    sentence: Sentence, windows: Windows, count: int
) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N S"] | None]:
    """Return token ids of rows as long as the sentence, and the sources of a decoder: the sentence, then other texts.

    The others are the first ordinary tokens of at most ``count`` windows, with the special tokens of the sentence.
    """
    ids_T = torch.tensor(sentence.ids)
    others_NT = windows.ids_NT[:count][:, windows.ordinary_T][:, : int(sentence.ordinary_T.sum())]
    rows_NT = ids_T.repeat(1 + len(others_NT), 1)
    rows_NT[1:, sentence.ordinary_T] = others_NT
    if windows.source_NS is None or sentence.source is None:
        return rows_NT, None
    sources_NS = windows.source_NS[:count]
    width = max(len(sentence.source), sources_NS.shape[1])
    padded_NS = torch.full((len(rows_NT), width), -1)
    padded_NS[0, : len(sentence.source)] = torch.tensor(sentence.source)
    padded_NS[1:, : sources_NS.shape[1]] = sources_NS
    return rows_NT, padded_NS


def swap_words(text: str, first: int, second: int) -> str:
    """Return the text with its words of these indices swapped; punctuation stays where it is.

    Words are what spaces separate, without the punctuation around them. Several spaces become one.
    """
    pieces = text.split()
    (lead, word, tail), (other_lead, other, other_tail) = _cut_word(pieces[first]), _cut_word(pieces[second])
    pieces[first], pieces[second] = f"{lead}{other}{tail}", f"{other_lead}{word}{other_tail}"
    return " ".join(pieces)


def list_words(text: str) -> list[str]:
    """Return the words of a text, without the punctuation around them."""
    return [_cut_word(piece)[1] for piece in text.split()]


def _cut_word(piece: str) -> tuple[str, str, str]:
    """Return the punctuation before a word, the word, and the punctuation after it; punctuation alone is a word."""
    match = re.fullmatch(r"(\W*)(.*?)(\W*)", piece)
    return (match[1], match[2], match[3]) if match and match[2] else ("", piece, "")


MOST_OTHERS = 48
"""Other texts from which the means by position come."""
SENTENCE_TERMS: Mapping[str, tuple[str, ...]] = {
    "token alone": ("content–content",),
    "token–position": ("content–position", "content–constant"),
    "position–token": ("position–content", "constant–content"),
    "position alone": tuple(term for name in POSITIONAL for term in TERM_GROUPS[name]),
    "token × distance": ("added, content", DATA_DEPENDENT),
}
"""The terms of the split logits in groups: does a term depend on the token or on the position of the query, and on
which of the two of the key? What no text changes, the constant, goes with position: it is there whatever the tokens
are. "Position alone" is the same sum as on the rest of the page. The last is zero except in layers that add what a
token and a distance give together (DeBERTa, Transformer-XL), or in which tokens choose positions or change what is
added."""
TOKENS_ALONE, POSITION_ALONE = map([*SENTENCE_TERMS].index, ("token alone", "position alone"))
"""The indices of tokens alone and of position alone among ``SENTENCE_TERMS``."""


@dataclass(frozen=True)
class SentenceLayer:
    """One attention layer on one sentence.

    Attributes:
        weights_HST: attention.
        shares_Ht: the shares of ``SENTENCE_TERMS`` in the variance of the logits, head by head.
        positional_N: the share of position alone in each of the other texts, all heads pooled.
        pooled_t: the shares in the sentence, all heads pooled.
    """

    weights_HST: Float[Tensor, "H S T"]
    shares_Ht: Float[Tensor, "H t"]
    pooled_t: Float[Tensor, " t"]
    positional_N: Float[Tensor, " N"]


@torch.no_grad()
def split_sentence(subject: Subject, sentence: Sentence, windows: Windows) -> list[SentenceLayer]:
    """Run the model over a sentence and other texts of its length, and split the logits of every layer."""
    ids_NT, source_NS = make_comparison_rows(sentence, windows, MOST_OTHERS)
    ordinary_T = sentence.ordinary_T
    recorded = capture(subject.model, subject.forward, ids_NT, ordinary_T=ordinary_T, source_NS=source_NS)
    positional = [TERMS.index(term) for term in SENTENCE_TERMS["position alone"]]
    layers = []
    for layer in recorded.layers:
        parts, split = split_first_text(layer), split_logits(layer, ordinary_T)
        real, mask_HST = parts.real, parts.real.mask_BHST[0]
        logits_HST = centre_logits(real.logits_BHST, real.mark_ordinary_pairs(ordinary_T))[0].double()
        columns = []
        for names in SENTENCE_TERMS.values():
            term_HST = torch.stack([parts.compute_term(name)[0].double() for name in names]).sum(0)
            columns.append((torch.where(mask_HST, term_HST, 0.0) * logits_HST).sum((-1, -2)))
        cov_Ht, var_H = torch.stack(columns, dim=-1).cpu(), logits_HST.square().sum((-1, -2)).cpu()
        layers.append(
            SentenceLayer(
                real.weights_BHST[0].float().cpu(),
                cov_Ht / var_H[:, None].clamp_min(1e-30),
                cov_Ht.sum(0) / var_H.sum().clamp_min(1e-30),
                split.cov_NHt[1:, :, positional].sum((1, 2)) / split.var_NH[1:].sum(1).clamp_min(1e-30),
            )
        )
    return layers
