"""The model that is inspected: what every measure may ask of it. ``Subject.of`` makes one of any model.

``huggingface_subject.py`` has the models of transformers, ``clockhands_subject.py`` those of this project.
"""

from __future__ import annotations

import copy
import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import nn

from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.models.input_table import Tables
from clockhands.shapes import Float, Tensor

Side: TypeAlias = Literal["encoder", "decoder"]
"""One of the two stacks of an encoder-decoder."""


def choose_side(side: Side | None, is_encoder_decoder: bool, name: str) -> Side | None:
    """Return the side of the model ``name`` to inspect. Raises UsageError for a side that it does not have."""
    if side is not None and not is_encoder_decoder:
        raise UsageError(f"{name} is no encoder-decoder, so it has no {side} side to choose; leave the side out")
    return (side or "encoder") if is_encoder_decoder else None


@dataclass
class Subject(ABC):
    """A model that is inspected, ours or anybody's.

    Attributes:
        model: the stack of layers that is run; of an encoder-decoder, the stack of one ``side``.
        tokenizer: turns text into the ids that ``model`` reads; None if there is none.
        name: what the model is called on a page.
        mechanisms: how position enters, by the names in ``facts.MECHANISM_CLAUSES``; empty where that is not known.
        training_texts: what the model was trained on, where that is known; it is then measured on that by default.
        side: which stack of an encoder-decoder ``model`` is; None for a model of one stack.
        encoder_decoder: the encoder-decoder; None for a model of one stack.
        training_pairs: source and target texts that a decoder with cross-attention was trained on, in place of
            ``training_texts``.
        source_tokenizer: turns the sources of ``training_pairs`` into the ids that the encoder reads.
        tokenizer_fault: why the checkpoint's tokenizer could not be opened; empty if it was, or if none was looked for.
    """

    model: nn.Module
    tokenizer: Any
    name: str
    mechanisms: tuple[str, ...] = ()
    training_texts: Sequence[str] | None = None
    side: Side | None = None
    encoder_decoder: nn.Module | None = field(default=None, repr=False)
    training_pairs: Sequence[tuple[str, str]] | None = None
    source_tokenizer: Any = None
    tokenizer_fault: str = field(default="", repr=False)

    _subclasses: ClassVar[list[type[Subject]]] = []

    def __init_subclass__(cls, *, last: bool = False) -> None:
        """Register a subclass: ``of`` asks one with ``last`` after all others whether it accepts a model."""
        super().__init_subclass__()
        Subject._subclasses.insert(len(Subject._subclasses) if last else 0, cls)

    @classmethod
    @abstractmethod
    def accepts(cls, model: nn.Module) -> bool:
        """Tell whether this subclass wraps such a model, if no subclass before it does."""

    @classmethod
    @abstractmethod
    def wrap(cls, model: nn.Module, tokenizer: Any = None, name: str = "", side: Side | None = None) -> Subject:
        """Make a subject of a model that this subclass ``accepts``; arguments and errors as ``of``."""

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any = None, name: str = "", side: Side | None = None) -> Subject:
        """Make a subject of a model object of ``transformers`` or of this project, with or without an output layer.

        The model is put into evaluation mode, without dropout, and stays in it; ``inspect`` restores its mode.
        ``side`` of an encoder-decoder (default: the encoder). Raises UsageError for a model of neither, and for a
        ``side`` of a model that is no encoder-decoder; CheckpointError for a model that does not turn token ids into
        one state per token.
        """
        for module in ("clockhands_subject", "huggingface_subject"):  # each registers its class
            importlib.import_module(f"clockhands.models.{module}")
        subclass = next(subclass for subclass in cls._subclasses if subclass.accepts(model))
        return subclass.wrap(model, tokenizer, name, side)

    @property
    def label(self) -> str:
        """The name on a page, with the side of an encoder-decoder."""
        return self.name if self.side is None else f"{self.name} ({self.side})"

    @property
    @abstractmethod
    def class_name(self) -> str:
        """The class of the model, with the side of an encoder-decoder."""

    @property
    def reads_source(self) -> bool:
        """Whether this is the decoder of an encoder-decoder, whose cross-attention reads a source."""
        return self.encoder_decoder is not None and self.side == "decoder"

    @property
    @abstractmethod
    def start_token(self) -> int | None:
        """The id that the decoder of an encoder-decoder reads first; None for other models."""

    @property
    @abstractmethod
    def mechanism_sentence(self) -> str:
        """How position enters, in one sentence."""

    @property
    @abstractmethod
    def has_unlisted_architecture(self) -> bool:
        """Whether this is a model of transformers that ``facts.FAMILIES`` does not have.

        Only what the model shows is then known.
        """

    @property
    @abstractmethod
    def has_no_absolute_positions(self) -> bool:
        """Whether it is known that the model has no positions, or that only differences of them matter.

        It is asked where ``run_shifted`` returns None, and a reader is then told so. Models of this project declare it,
        those with RoPE too, though their positions can be shifted; for other models with RoPE it is False.
        """

    def explain_missing_table(self, why: str) -> str:
        """Return the sentence of a measure that is left out because ``read_tables`` returns None.

        ``why`` is the measure's own first sentence, that there are no position vectors; what the model does instead
        follows. Where position does enter at the input, HuggingFaceSubject says how in place of both.
        """
        return f"{why} {self.mechanism_sentence}"

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    @property
    @abstractmethod
    def max_length(self) -> int | None:
        """The number of tokens in the longest text that the model can read; None if none is known."""

    @property
    @abstractmethod
    def max_source_length(self) -> int | None:
        """The number of tokens in the longest source that the encoder can read, where that is known."""

    @abstractmethod
    def find_token_table(self) -> Float[Tensor, "V E"] | None:
        """Return the token table as the model stores it; None where it has none."""

    def read_token_table(self) -> Float[Tensor, "V E"]:
        """Return the token table on the CPU. Raises CheckpointError where there is none."""
        rows = self.find_token_table()
        if rows is None:
            raise CheckpointError(
                f"{self.name} has no table of token vectors, so tokens cannot be told from its states"
            )
        return rows.detach().cpu()

    @property
    def vocabulary_size(self) -> int | None:
        """The number of token ids; None where the model has no token table."""
        rows = self.find_token_table()
        return None if rows is None else len(rows)

    @property
    @abstractmethod
    def num_heads(self) -> int:
        """The number of heads of a layer, by the configuration; 1 where it names none."""

    def check_ids(self, ids_BT: Tensor) -> None:
        """Raise DataError if the model does not know one of these token ids."""
        size = self.vocabulary_size
        if size is not None and ids_BT.numel() and int(ids_BT.max()) >= size:
            raise DataError(
                f"{self.name} has {size} rows of tokens (ids 0 to {size - 1}) and was given the id "
                f"{int(ids_BT.max())}: the ids, or the tokenizer that gave them, belong to another model; give the "
                "model's own tokenizer (--tokenizer NAME, tokenizer=...)"
            )

    @abstractmethod
    def forward(
        self, ids_BT: Tensor, *, source_BS: Tensor | None = None, positions_BT: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the hidden states, B × T × D each: the embedding output, then the output of every block.

        No token is masked as padding. ``source_BS`` are the ids that the encoder reads for a decoder, -1 for padding
        (default: the same ids). ``positions_BT`` are the positions of the tokens, for a model that takes them (default:
        0, 1, 2 …). Raises DataError for ids that the model does not know, and UsageError for source ids that the
        encoder of a model of this project does not know.
        """

    @abstractmethod
    def compute_next_logits(self, ids_BT: Tensor) -> Float[Tensor, "B V"] | None:
        """Return what the output layer predicts at the last token; None without a layer that predicts tokens.

        Of a causal language model these are the logits of the token after the last; of a masked one, of the last.
        """

    def list_modules(self) -> dict[str, nn.Module]:
        """Return the modules that a subject holds, by the names of its attributes; one may be a part of another."""
        modules = {"encoder_decoder": self.encoder_decoder, "model": self.model}
        return {name: module for name, module in modules.items() if module is not None}

    def count_parameters(self) -> int:
        """Count the parameters of all modules that it holds, each once: both sides, and the output layer if opened."""
        # A parameter that several modules share comes once out of a list of modules.
        return sum(weight.numel() for weight in nn.ModuleList(self.list_modules().values()).parameters())

    def to_float32(self) -> Subject:
        """Return this subject, or a copy in float32 if its weights are narrower.

        Squares and sums of states would overflow in float16, and keep two digits in bfloat16.
        """
        modules = self.list_modules()
        weights = (weight for module in modules.values() for weight in module.parameters())
        if all(torch.finfo(weight.dtype).bits >= 32 for weight in weights if weight.is_floating_point()):
            return self
        copies: dict[str, Any] = copy.deepcopy(modules)  # all at once, so that what they share stays shared
        return replace(self, **{name: module.float() for name, module in copies.items()})

    @abstractmethod
    def read_tables(self, length: int = 0) -> Tables | None:
        """Return the input tables in float32 on the CPU; None where the model has none.

        It has none where no position vectors enter at the input, where they are not the rows of one table, and where
        no token has a vector of its own because neighbours are mixed.

        ``length``: the fewest position vectors that are needed, of a scheme that computes them. Raises CheckpointError
        for tables with NaN or infinite values.
        """

    @property
    @abstractmethod
    def interleaved(self) -> bool:
        """Whether RoPE rotates neighbouring channels (0, 1), not those half a head apart."""

    @property
    @abstractmethod
    def concatenated(self) -> bool:
        """Whether tokens and positions have channels of their own, so that they cannot share directions."""

    @abstractmethod
    def run_shifted(self, ids_BT: Tensor, step: int, *, source_BS: Tensor | None = None) -> tuple[Tensor, ...] | None:
        """Return the hidden states with all positions ``step`` later; None where positions cannot be shifted so far.

        ``source_BS`` is that of ``forward``.
        """

    @abstractmethod
    def average_positions(self, length: int) -> AbstractContextManager[None]:
        """Inside the block, every position row is the mean of the first ``length``, for texts of that length.

        Only for a model whose ``read_tables`` returns tables; HuggingFaceSubject raises CheckpointError for another.
        """

    @abstractmethod
    def remove_residuals(self) -> AbstractContextManager[None] | None:
        """Inside the block, no layer adds its input to its output; None where the model has no switch for that."""

    @abstractmethod
    def build_untrained(self, seed: int = 0) -> Subject:
        """Return the same architecture with weights initialised again, as its class does it: the usual control."""
