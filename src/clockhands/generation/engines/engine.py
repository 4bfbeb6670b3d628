"""The interface of every engine: sources in, texts out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clockhands.shapes import Bool, Int, Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Written:
    """``tokens``, the end token included if it was reached, and the sum of their log-probabilities (natural)."""

    tokens: list[int]
    log_probability: float


@dataclass(frozen=True)
class Decoding:
    """How to write: at most ``longest`` tokens; ``beam`` 1 is greedy.

    A beam returns the text with the highest log-probability / tokens ** ``length_penalty``.
    """

    longest: int
    beam: int = 1
    length_penalty: float = 1.0


class Engine(ABC):
    """Writes with one model, a ``ClockhandsForSeq2SeqLM``. Make it once and use it for every batch.

    Args:
        model: on the CPU or a GPU; the engine computes where the model lies. It may copy weights: make the engine
            again when the model has changed.
        compute_type: of the matrix products, as the engine names them.

    Raises UsageError if the engine cannot be had here or cannot express the model.
    """

    def __init__(self, model: PreTrainedModel, compute_type: str = "float32") -> None:
        self.model, self.compute_type = model, compute_type

    @classmethod  # noqa: B027 - most engines refuse nothing
    def refuse_options(cls, compute_type: str) -> None:
        """Raise UsageError for options that the engine does not take with any model."""

    @abstractmethod
    def write(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, decoding: Decoding
    ) -> list[Written]:
        """Write a text for each source. ``mask_BT`` is False at padding; None where there is none."""


def get_end_tokens(model: PreTrainedModel) -> list[int]:
    """Return the tokens that end a text."""
    ends = model.config.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def get_first_token(model: PreTrainedModel) -> int:
    """Return the token that every text begins with, which is not written."""
    config = model.config
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    assert start is not None, "a translator has a first token"
    return int(start)
