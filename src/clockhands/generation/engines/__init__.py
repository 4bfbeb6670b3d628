"""Engines: the ways to translate with a trained encoder-decoder, by name: token ids of sources in, of translations out.

``ENGINES[name](model, compute_type)`` is an ``Engine``, which generates a text for each source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clockhands.catalogue import Catalogue, import_later
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

    usual_type = ""
    """The compute type where the caller names none; empty: that of the weights."""

    def __init__(self, model: ClockhandsPreTrainedModel, compute_type: str | None = None) -> None:
        self.model = model
        weights = str(next(model.parameters()).dtype).removeprefix("torch.")
        self.compute_type = compute_type or self.usual_type or weights

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


ENGINES: Catalogue[type[Engine]] = Catalogue(
    "engine",
    {
        "transformers": import_later("clockhands.generation.engines.huggingface", "TransformersEngine"),
        "ctranslate2": import_later("clockhands.generation.engines.ctranslate", "CTranslate2Engine"),
    },
)
"""The engines by name. The first runs every encoder-decoder."""
