"""Tokenizers: trained here by ``tokenizers``, or any existing one; always a transformers tokenizer, so that
``AutoTokenizer`` opens what a run saved. Ids: 0 ``<pad>``, 1 ``<s>``, 2 ``</s>``, 3 ``<unk>``, 4 ``<mask>`` if masked.

Every kind writes back what it read: spaces belong to the tokens. For translation the first word of a text is the same
token as anywhere else, and a text ends with ``</s>``. For language models text is taken as it is, nothing is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from clockhands.data.pairs import Corpus
from clockhands.errors import DataError, UsageError, unknown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TokenKind: TypeAlias = Literal["bpe", "unigram", "word", "character"]
Purpose: TypeAlias = Literal["translation", "language", "masked"]
Normalisation: TypeAlias = Literal["none", "nfc", "nfkc"]
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
USUAL_VOCABULARY = 8000
WORD = r" ?\w+| ?[^\s\w]|\s"


@dataclass(frozen=True)
class Tokenizers:
    """What reads the source and what writes the target; often one and the same."""

    source: PreTrainedTokenizerBase
    target: PreTrainedTokenizerBase

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source is self.target

    def save(self, folder: str | Path) -> None:
        """Write a folder that ``AutoTokenizer`` opens; a target tokenizer of its own goes into ``target`` below."""
        _save(self.source, Path(folder))
        if not self.shared:
            _save(self.target, Path(folder) / "target")

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizers:
        """Open what ``save`` wrote. Raises DataError if there is no tokenizer."""
        source = open_tokenizer(folder)
        apart = (Path(folder) / "target" / "tokenizer_config.json").is_file()
        return cls(source, open_tokenizer(Path(folder) / "target") if apart else source)


def train_tokenizers(
    corpus: Corpus,
    *,
    purpose: str | None = None,
    shared: bool = True,
    kind: str = "bpe",
    vocabulary: int | None = None,
    lowercase: bool = False,
    normalisation: str = "nfc",
    min_frequency: int = 1,
) -> Tokenizers:
    """Tokenizers learned from the training split: one for both sides, or one each. Raises as ``train_tokenizer``.

    ``purpose`` follows from the corpus where it is None.
    """

    def learn(texts: list[str]) -> PreTrainedTokenizerBase:
        return train_tokenizer(
            texts,
            purpose=purpose or corpus.kind,
            kind=kind,
            vocabulary=vocabulary,
            lowercase=lowercase,
            normalisation=normalisation,
            min_frequency=min_frequency,
        )

    if shared or corpus.kind == "language":
        one = learn(corpus.texts("train"))
        return Tokenizers(one, one)
    return Tokenizers(learn(corpus.sources("train")), learn(corpus.targets("train")))


def train_tokenizer(
    texts: Sequence[str],
    *,
    purpose: str = "translation",
    kind: str = "bpe",
    vocabulary: int | None = None,
    lowercase: bool = False,
    normalisation: str = "nfc",
    min_frequency: int = 1,
) -> PreTrainedTokenizerBase:
    """A tokenizer learned from ``texts``.

    ``kind``: byte-level ``bpe`` (never meets an unknown character), ``unigram``, ``word`` or ``character``.
    ``vocabulary`` counts every token, the special ones too; None takes all words or characters that occur at least
    ``min_frequency`` times, and for the other kinds 8000 or as many as the text allows.
    Raises UsageError for a size that this text does not allow, with the one it does, and for unknown names.
    """
    if kind not in KINDS:
        raise UsageError(unknown("kind of tokenizer", kind, KINDS))
    if purpose not in ("translation", "language", "masked"):
        raise UsageError(unknown("purpose of a tokenizer", purpose, ("translation", "language", "masked")))
    if min_frequency < 1:
        raise UsageError(f"min_frequency={min_frequency}; a token occurs at least once")
    special = [token for name, token in SPECIAL.items() if purpose == "masked" or name != "mask_token"]
    tokenizer, trainer = KINDS[kind](purpose == "translation", special, vocabulary, min_frequency)
    tokenizer.normalizer = _normalizer(lowercase, normalisation, tokenizer.normalizer)
    if kind == "unigram" and vocabulary is not None:
        # Checked beforehand: the trainer stops with a panic of its own.
        characters = set(chain.from_iterable(map(tokenizer.normalizer.normalize_str, texts))) | {"▁"}
        _check_size(max(vocabulary, len(characters - {" "}) + len(special)), vocabulary, kind)
    _train(tokenizer, trainer, texts)
    _check_size(tokenizer.get_vocab_size(), vocabulary, kind)
    if purpose == "translation":
        end = SPECIAL["eos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", special_tokens=[(end, special.index(end))]
        )
    return _for_transformers(tokenizer, special)


def open_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """An existing tokenizer, from a folder or by its name on the Hugging Face hub.

    A missing end of text is taken from the separator (BERT), a missing padding token is added (GPT-2).
    Raises DataError if it cannot be opened, UsageError if it has no way to end a text.
    """
    from transformers import AutoTokenizer

    looks_local = str(name).startswith((".", "/", "~")) or str(name).count("/") > 1 or isinstance(name, Path)
    if looks_local and not Path(name).is_dir():
        raise DataError(f"there is no tokenizer folder {name}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(name))
    except Exception as fault:
        # Whatever the library stumbles over (no such file, foreign format, no network), there is no tokenizer here.
        raise DataError(f"cannot open the tokenizer {str(name)!r}: {str(fault).splitlines()[0]}") from fault
    if tokenizer.eos_token is None:
        if tokenizer.sep_token is None:
            raise UsageError(f"tokenizer {str(name)!r} has no token that ends a text (eos or sep); give another")
        tokenizer.eos_token = tokenizer.sep_token
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": SPECIAL["pad_token"]})
    return tokenizer


def _save(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    try:
        tokenizer.save_pretrained(str(folder))
    except OSError as fault:
        raise DataError(f"cannot write the tokenizer to {folder}: {fault.strerror or fault}") from fault


def _for_transformers(tokenizer: Tokenizer, special: list[str]) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    named = {name: token for name, token in SPECIAL.items() if token in special}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, padding_side="right", **named
    )


def _train(tokenizer: Tokenizer, trainer: Any, texts: Sequence[str]) -> None:
    if not any(text.strip() for text in texts):
        raise DataError("there is no text to learn a tokenizer from")
    tokenizer.train_from_iterator(texts, trainer, length=len(texts))


def _check_size(size: int, vocabulary: int | None, kind: str) -> None:
    if vocabulary is None or size == vocabulary:
        return
    bound, limit = ("larger", "largest") if size < vocabulary else ("smaller", "smallest")
    raise UsageError(
        f"vocabulary={vocabulary} is {bound} than this text allows; "
        f"the {limit} possible with a {kind} tokenizer is {size}"
    )


def _normalizer(lowercase: bool, normalisation: str, last: Any) -> Any:
    forms: dict[str, list[Any]] = {"none": [], "nfc": [normalizers.NFC()], "nfkc": [normalizers.NFKC()]}
    if normalisation not in forms:
        raise UsageError(unknown("normalisation", normalisation, forms))
    steps = [*forms[normalisation], *([normalizers.Lowercase()] if lowercase else []), *([last] if last else [])]
    return normalizers.Sequence(steps)


def _bpe(prefix: bool, special: list[str], vocabulary: int | None, min_frequency: int) -> tuple[Tokenizer, Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = _decoder(decoders.ByteLevel(), prefix)
    return tokenizer, trainers.BpeTrainer(
        vocab_size=vocabulary or USUAL_VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=min_frequency,
        show_progress=False,
    )


def _unigram(prefix: bool, special: list[str], vocabulary: int | None, _: int) -> tuple[Tokenizer, Any]:
    scheme: Literal["always", "never"] = "always" if prefix else "never"
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=vocabulary or USUAL_VOCABULARY,
        special_tokens=special,
        unk_token=SPECIAL["unk_token"],
        show_progress=False,
    )


def _word(prefix: bool, special: list[str], vocabulary: int | None, min_frequency: int) -> tuple[Tokenizer, Any]:
    tokenizer, trainer = _whole(WORD, special, vocabulary, min_frequency)
    tokenizer.decoder = _decoder(decoders.Fuse(), prefix)
    if prefix:
        tokenizer.normalizer = normalizers.Prepend(" ")
    return tokenizer, trainer


def _character(_: bool, special: list[str], vocabulary: int | None, min_frequency: int) -> tuple[Tokenizer, Any]:
    tokenizer, trainer = _whole(r"(?m).", special, vocabulary, min_frequency)
    tokenizer.decoder = decoders.Fuse()
    return tokenizer, trainer


def _whole(pattern: str, special: list[str], vocabulary: int | None, min_frequency: int) -> tuple[Tokenizer, Any]:
    """A vocabulary of whatever the pattern cuts out."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    return tokenizer, trainers.WordLevelTrainer(
        vocab_size=vocabulary or 10**9, special_tokens=special, min_frequency=min_frequency, show_progress=False
    )


def _decoder(joined: Any, prefix: bool) -> Any:
    return decoders.Sequence([joined, decoders.Strip(" ", 1, 0)]) if prefix else joined


KINDS: dict[str, Callable[[bool, list[str], int | None, int], tuple[Tokenizer, Any]]] = {
    "bpe": _bpe,
    "unigram": _unigram,
    "word": _word,
    "character": _character,
}
