"""Train tokenizers, and keep those of a corpus; they are tokenizers of transformers, which ``AutoTokenizer`` opens.

The ids of one that is trained here begin with 0 ``<pad>``, 1 ``<s>``, 2 ``</s>``, 3 ``<unk>``, and for masked language
models 4 ``<mask>``. It decodes the ids of a text to that text: spaces belong to the tokens. For translation the first
word of a text is the same token as anywhere else, and a text ends with ``</s>``. For language models nothing is added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tokenizers import Tokenizer, processors

from clockhands.data.kinds import (
    CHARACTERS_A_PIECE,
    KINDS,
    LEAST_VOCABULARY,
    SPECIAL,
    USUAL_VOCABULARY,
    cut_long,
    make_normalizer,
    make_tokenizer,
    make_untrained,
)
from clockhands.data.splits import Corpus, Task
from clockhands.errors import CheckpointError, DataError, UsageError, describe_unknown
from clockhands.pretrained import TOKENIZER, TRUST, load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SAMPLE = "Ein Satz, a sentence; ÉTÉ été 12.5 %  ﬁn 你好"
"""A text whose ids tell how a tokenizer treats case, accents, spaces and different forms of the same character."""
TokenizerTask: TypeAlias = Task | Literal["masked language modelling"]
TASKS = ("translation", "language modelling", "masked language modelling")


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizer of the sources and that of the targets; often one and the same."""

    source: PreTrainedTokenizerBase
    target: PreTrainedTokenizerBase

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source is self.target

    def save(self, folder: str | Path) -> None:
        """Write a folder that ``AutoTokenizer`` opens; a target tokenizer of its own goes into ``target`` below."""
        apart = {} if self.shared else {Path(folder) / "target": self.target}
        for place, tokenizer in ({Path(folder): self.source} | apart).items():
            try:
                place.mkdir(parents=True, exist_ok=True)
                tokenizer.save_pretrained(str(place))
            except Exception as fault:
                # The Rust side raises plain exceptions for a full disk or missing rights.
                raise DataError(f"cannot write the tokenizer to {place}: {fault}") from fault

    @property
    def fingerprint(self) -> str:
        """A hash of how both tokenizers turn texts into ids and back; saving and opening does not change it."""
        digest = hashlib.blake2b(digest_size=16)
        for tokenizer in (self.source, self.target):
            words = sorted(tokenizer.get_vocab().items(), key=itemgetter(1))
            backend: Any = getattr(tokenizer, "backend_tokenizer", None)
            form, pieces = SAMPLE, []
            if backend is not None and backend.normalizer:
                form = backend.normalizer.normalize_str(SAMPLE)
            if backend is not None and backend.pre_tokenizer:
                pieces = [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(form)]
            decoded = tokenizer.decode([number for _, number in words[:256]])
            behaviour = [words, decoded, form, pieces, tokenizer(SAMPLE)["input_ids"]]
            digest.update(json.dumps(behaviour).encode())
        return digest.hexdigest()

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizers:
        """Open what ``save`` wrote. Raises DataError if there is no tokenizer, UsageError if one cannot end a text."""
        source = open_tokenizer(folder)
        apart = (Path(folder) / "target" / TOKENIZER).is_file()
        return cls(source, open_tokenizer(Path(folder) / "target") if apart else source)


def train_tokenizers(
    corpus: Corpus,
    *,
    task: str | None = None,
    shared: bool = True,
    kind: str | None = None,
    vocabulary: int | None = None,
    lowercase: bool = False,
    normalisation: str = "nfc",
    min_frequency: int = 1,
) -> Tokenizers:
    """Train tokenizers on the training split: one for both sides, or one for each. Raises as ``train_tokenizer``.

    ``task`` follows from the corpus where it is None. ``kind``: as for ``train_tokenizer``, or ``morpheme``, the closed
    list of the corpus, of which nothing is learned; None is ``morpheme`` where the corpus has such a list and no
    ``vocabulary`` is asked for, else ``bpe``. Raises UsageError for ``morpheme`` where there is no such list.
    """
    task = task or corpus.task
    if kind is None:
        kind = "morpheme" if corpus.morphemes and vocabulary is None else "bpe"
    form: dict[str, Any] = {"lowercase": lowercase, "normalisation": normalisation}
    if kind == "morpheme":
        if corpus.morphemes is None:
            raise UsageError(
                f"corpus {corpus.name!r} has no list of morphemes; take another kind of tokenizer, such as bpe"
            )
        special, (source, target) = _list_special_tokens(task), corpus.morphemes()
        lists = [source + target] if shared else [source, target]
        made = [make_tokenizer(morphemes, special, make_normalizer(**form, last=None)) for morphemes in lists]
        ready = [_for_transformers(tokenizer, special, task) for tokenizer in made]
    else:
        form |= {"kind": kind, "vocabulary": vocabulary, "min_frequency": min_frequency, "task": task}
        if shared or corpus.task == "language modelling":
            ready = [train_tokenizer(corpus.texts("train"), **form)]
        else:
            ready = [train_tokenizer(texts, **form) for texts in (corpus.sources("train"), corpus.targets("train"))]
    return Tokenizers(ready[0], ready[-1])


def train_tokenizer(
    texts: Sequence[str],
    *,
    task: str = "translation",
    kind: str = "bpe",
    vocabulary: int | None = None,
    lowercase: bool = False,
    normalisation: str = "nfc",
    min_frequency: int = 1,
) -> PreTrainedTokenizerBase:
    """Learn a tokenizer from ``texts``.

    ``kind``: byte-level ``bpe`` (never meets an unknown character), ``unigram``, ``word`` or ``character``.
    ``vocabulary`` counts every token, the special ones too; None takes all words or characters that occur at least
    ``min_frequency`` times, and for the other kinds one piece for every 150 characters of the text, at least 1000, at
    most 8000: of 8000 pieces of 2,000 pairs most are words seen once, by which a model learns the pairs by heart.
    Raises UsageError for a size that this text does not allow, with the one it does, and for unknown names.
    """
    if kind not in KINDS:
        raise UsageError(describe_unknown("kind of tokenizer", kind, KINDS))
    special = _list_special_tokens(task)
    if min_frequency < 1:
        raise UsageError(f"min_frequency={min_frequency}; a token occurs at least once")
    size = vocabulary
    if vocabulary is None and kind in ("bpe", "unigram"):
        size = max(LEAST_VOCABULARY, min(USUAL_VOCABULARY, sum(map(len, texts)) // CHARACTERS_A_PIECE))
    tokenizer, trainer = make_untrained(kind, task == "translation", special, size, min_frequency)
    tokenizer.normalizer = make_normalizer(lowercase, normalisation, tokenizer.normalizer)
    if kind == "unigram":
        # Below this the trainer stops with a panic of its own; from here on it says what it needs.
        characters = set(chain.from_iterable(map(tokenizer.normalizer.normalize_str, texts)))
        trainer.vocab_size = max(trainer.vocab_size, len(characters | {"▁"}) + len(special))
    if not any(text.strip() for text in texts):
        raise DataError("there is no text to learn a tokenizer from")
    tokenizer.train_from_iterator(chain.from_iterable(map(cut_long, texts)), trainer)
    size = tokenizer.get_vocab_size()
    if vocabulary is not None and size != vocabulary:
        bound, limit = ("larger", "largest") if size < vocabulary else ("smaller", "smallest")
        raise UsageError(
            f"vocabulary={vocabulary} is {bound} than this text allows; "
            f"the {limit} possible with a {kind} tokenizer is {size}"
        )
    return _for_transformers(tokenizer, special, task)


def _list_special_tokens(task: str) -> list[str]:
    if task not in TASKS:
        raise UsageError(describe_unknown("task of a tokenizer", task, TASKS))
    return [token for name, token in SPECIAL.items() if task == "masked language modelling" or name != "mask_token"]


def _for_transformers(tokenizer: Tokenizer, special: list[str], task: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer as transformers has them; for translation it ends each text."""
    from transformers import PreTrainedTokenizerFast

    if task == "translation":
        end = SPECIAL["eos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", special_tokens=[(end, special.index(end))]
        )
    named = {name: token for name, token in SPECIAL.items() if token in special}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, padding_side="right", **named
    )


def open_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """Open an existing tokenizer, from a folder or by its name on the Hugging Face hub.

    A missing end of text is taken from the separator (BERT), a missing padding token is added (GPT-2). No code that
    comes with a tokenizer is run. Raises DataError if it cannot be opened, UsageError if it cannot end a text.
    """
    looks_local = str(name).startswith((".", "/", "~")) or str(name).count("/") > 1 or isinstance(name, Path)
    if looks_local and not Path(name).is_dir():
        raise DataError(f"there is no tokenizer folder {name}")
    here = Path(name).is_dir()
    try:
        tokenizer = load_tokenizer(name, local_files_only=here or not _is_reachable(str(name)))
    except CheckpointError as fault:
        # No command that trains or translates can be told to trust it.
        raise DataError(str(fault).replace(TRUST, "which is never run here; take a tokenizer without code")) from fault
    # Which class of the tokenizer's own code stood beside it: that is not used, and must not be saved into a run.
    tokenizer.init_kwargs.pop("auto_map", None)
    if tokenizer.eos_token is None:
        if tokenizer.sep_token is None:
            raise UsageError(f"tokenizer {str(name)!r} has no token that ends a text (eos or sep); give another")
        tokenizer.eos_token = tokenizer.sep_token
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": SPECIAL["pad_token"]})
    return tokenizer


def _is_reachable(name: str) -> bool:
    """Return whether the hub answers. It is asked once: a library would try each of several files for many seconds."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(name, timeout=10)
    except HfHubHTTPError:
        return True  # It answered, though not with a model; opening says what is wrong.
    except Exception:
        return False  # No network, or asked to stay offline: what was fetched before can still be opened.
    return True
