"""What an engine is: it generates a text for each source with one encoder-decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clockhands.errors import UsageError
from clockhands.shapes import Bool, Int, Tensor

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel


@dataclass(frozen=True)
class DecodedSequence:
    """A text that an engine generated, as token ids.

    Args:
        tokens: the token ids, without the start token, and with the end token if the text reached it.
        log_probability: the sum of the natural logarithms of their probabilities.
    """

    tokens: list[int]
    log_probability: float


@dataclass(frozen=True)
class DecodingOptions:
    """How ``Engine.generate`` searches in one batch; ``translate`` makes it from a ``Search``.

    Args:
        max_new_tokens: the most tokens of a text, its end token included.
        beam: the number of hypotheses of each source; 1 is greedy search.
        length_penalty: with a beam, the text with the highest log-probability / tokens ** ``length_penalty`` is
            returned.
    """

    max_new_tokens: int
    beam: int = 1
    length_penalty: float = 1.0


class Engine(ABC):
    """Generates texts with one encoder-decoder, a ``ClockhandsForSeq2SeqLM``. Make it once and use it for every batch.

    Args:
        model: on the CPU or a GPU, and in evaluation mode, or else an engine may leave dropout on; the engine runs on
            the model's device. It may copy weights: make the engine again when the model has changed.
        compute_type: the number type of the matrix products, such as ``float32`` or ``int8``; None: the engine chooses.
            The attribute of this name holds what is used.

    Raises UsageError if the engine's package is not installed, or the engine cannot run the model or compute in the
    type.
    """

    def __init__(self, model: ClockhandsPreTrainedModel, compute_type: str | None = None) -> None:
        self.model = model
        self.compute_type = self.choose_compute_type(model) if compute_type is None else compute_type

    def choose_compute_type(self, model: ClockhandsPreTrainedModel) -> str:
        """Return the compute type for a model if the caller names none: that of its weights, such as ``float32``."""
        return str(next(model.parameters()).dtype).removeprefix("torch.")

    @classmethod  # noqa: B027 - not abstract, because an engine need not refuse any
    def refuse_compute_type(cls, compute_type: str | None) -> None:
        """Raise UsageError for a compute type that the engine refuses whatever the model; None: none was named."""

    @abstractmethod
    def generate(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, decoding: DecodingOptions
    ) -> list[DecodedSequence]:
        """Generate a text for each source, and return them in the order of the sources.

        Args:
            ids_BT: the token ids of the sources, padded to the same length.
            mask_BT: True at tokens, False at padding; None if there is no padding.
            decoding: how to search.

        Raises PositionError for a token beyond the last position of a scheme.
        """


def get_end_tokens(model: ClockhandsPreTrainedModel) -> list[int]:
    """Return the ids of the tokens that end a text; empty if the model has none."""
    ends = model.config.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def get_start_token(model: ClockhandsPreTrainedModel) -> int:
    """Return the id of the token from which the decoder starts; it is not part of the text.

    Raises UsageError if the configuration of the model names none.
    """
    start = model.config.find_start_token()
    if start is None:
        raise UsageError("the model has no token that a translation begins with; set config.decoder_start_token_id")
    return start
