"""The interface of every engine: sources in, texts out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clockhands.shapes import Bool, Int, Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class DecodedSequence:
    """``tokens``, the end token included if it was reached, and the sum of their log-probabilities (natural)."""

    tokens: list[int]
    log_probability: float


@dataclass(frozen=True)
class Decoding:
    """How an engine writes: at most ``max_new_tokens`` tokens; ``beam`` 1 is greedy. ``Search`` makes it.

    A beam returns the text with the highest log-probability / tokens ** ``length_penalty``.
    """

    max_new_tokens: int
    beam: int = 1
    length_penalty: float = 1.0


class Engine(ABC):
    """Writes with one model, a ``ClockhandsForSeq2SeqLM``. Make it once and use it for every batch.

    Args:
        model: on the CPU or a GPU; the engine runs on the model's device. It may copy weights: make the engine again
            when the model has changed.
        compute_type: the type of the matrix products, one of the engine's names.

    Raises UsageError if the engine's package is not installed or it cannot express the model.
    """

    def __init__(self, model: PreTrainedModel, compute_type: str = "float32") -> None:
        self.model, self.compute_type = model, compute_type

    @classmethod  # noqa: B027 - most engines refuse nothing
    def refuse_options(cls, compute_type: str) -> None:
        """Raise UsageError for options that the engine does not take with any model."""

    @abstractmethod
    def write(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, decoding: Decoding
    ) -> list[DecodedSequence]:
        """Write a text for each source. ``mask_BT`` is False at padding; None where there is none."""


def get_end_tokens(model: PreTrainedModel) -> list[int]:
    """Return the tokens that end a text."""
    ends = model.config.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def get_first_token(model: PreTrainedModel) -> int:
    """Return the decoder's start token, which is not part of the text."""
    config = model.config
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    assert start is not None, "a translator has a first token"
    return int(start)
