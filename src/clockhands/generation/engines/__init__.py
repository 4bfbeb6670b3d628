"""Engines: the ways to translate with a trained encoder-decoder, by name: token ids of sources in, of translations out.

``ENGINES[name](model, compute_type)`` is an ``Engine``, which generates a text for each source. That of transformers,
which runs every model, stands here; that of CTranslate2 in its own module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from clockhands.catalogue import Catalogue, import_later
from clockhands.errors import UsageError
from clockhands.shapes import Bool, Int, Tensor

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel

LOGITS_AT_ONCE = 1 << 25
"""Logits that exist at a time while texts are scored (128 MiB in float32)."""


@dataclass(frozen=True)
class DecodedSequence:
    """A text that an engine generated, as token ids.

    Args:
        tokens: the token ids, without the start token, and with the end token if the text reached it.
        log_probability: the sum of the natural logarithms of their probabilities.
    """

    tokens: list[int]
    log_probability: float


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
        self.model, self.compute_type = model, compute_type or _get_weight_type(model)

    @abstractmethod
    def generate(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, most: int, beam: int = 1,
        penalty: float = 1.0,
    ) -> list[DecodedSequence]:  # fmt: skip
        """Generate a text for each source, and return them in the order of the sources.

        Args:
            ids_BT: the token ids of the sources, padded to the same length.
            mask_BT: True at tokens, False at padding; None if there is no padding.
            most: the most tokens of a text, its end token included.
            beam: the number of hypotheses of each source; 1 is greedy search.
            penalty: with a beam, the text with the highest log-probability / tokens ** ``penalty`` is returned.

        Raises PositionError for a token beyond the last position of a scheme.
        """


def _get_weight_type(model: ClockhandsPreTrainedModel) -> str:
    return str(next(model.parameters()).dtype).removeprefix("torch.")


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


class TransformersEngine(Engine):
    """Every model, by ``generate`` of transformers, in the type of the model's weights.

    Raises UsageError for another compute type than that of the weights.
    """

    def __init__(self, model: ClockhandsPreTrainedModel, compute_type: str | None = None) -> None:
        super().__init__(model, compute_type)
        weight_type = _get_weight_type(model)
        if self.compute_type != weight_type:
            raise UsageError(
                f"compute_type is {self.compute_type!r}, but the engine transformers computes in the type of the "
                f"weights, and those of this model are {weight_type}; leave it out, or choose another engine for it, "
                "such as ctranslate2"
            )
        self.start_token, self.end_tokens = get_start_token(model), get_end_tokens(model)

    @torch.no_grad()
    def generate(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, most: int, beam: int = 1,
        penalty: float = 1.0,
    ) -> list[DecodedSequence]:  # fmt: skip
        """Generate a text for each source, in order; see ``Engine.generate``."""
        from transformers import GenerationConfig
        from transformers.modeling_outputs import BaseModelOutput

        mask_BT = torch.ones_like(ids_BT, dtype=torch.bool) if mask_BT is None else mask_BT
        model: Any = self.model  # its base class does not declare what transformers gives it
        states_BTD = model.get_encoder()(ids_BT, mask_BT)[0]
        # A configuration of its own: that of the model may ask for sampling, or for other beams.
        config = GenerationConfig(
            max_new_tokens=most, num_beams=beam, do_sample=False, length_penalty=penalty, early_stopping=False,
            decoder_start_token_id=self.start_token, eos_token_id=self.end_tokens or None,
            pad_token_id=self.end_tokens[0] if self.end_tokens else self.start_token,
        )  # fmt: skip
        # generate repeats the states of the source for a beam in place, and they are needed once more.
        source = BaseModelOutput(last_hidden_state=states_BTD)
        written_BS = model.generate(encoder_outputs=source, attention_mask=mask_BT, generation_config=config)[:, 1:]
        texts = []
        for row in written_BS.tolist():
            ends = (place for place, token in enumerate(row, 1) if token in self.end_tokens)
            texts.append(row[: next(ends, len(row))])
        # The log-probability of each text, by reading it once: generate would keep the logits of all steps for it.
        before_BS = torch.cat([torch.full_like(written_BS[:, :1], self.start_token), written_BS[:, :-1]], dim=1)
        rows = max(1, LOGITS_AT_ONCE // (before_BS.shape[1] * model.config.vocab_size))
        decoded: list[DecodedSequence] = []
        for start in range(0, len(texts), rows):
            part = slice(start, start + rows)
            logits_BSV = model(
                encoder_outputs=BaseModelOutput(last_hidden_state=states_BTD[part]), attention_mask=mask_BT[part],
                decoder_input_ids=before_BS[part], use_cache=False,
            ).logits  # fmt: skip
            log_p_BS = logits_BSV.float().log_softmax(-1).gather(-1, written_BS[part][..., None])[..., 0]
            for text, log_p_S in zip(texts[part], log_p_BS, strict=True):
                decoded.append(DecodedSequence(text, float(log_p_S[: len(text)].sum())))
        return decoded


ENGINES: Catalogue[type[Engine]] = Catalogue(
    "engine",
    {
        "transformers": TransformersEngine,
        "ctranslate2": import_later("clockhands.generation.engines.ctranslate", "CTranslate2Engine"),
    },
)
"""The engines by name. The first runs every encoder-decoder."""
