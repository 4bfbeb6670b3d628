"""Greedy and beam search by ``generate`` of transformers, which runs every encoder-decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig
from transformers.modeling_outputs import BaseModelOutput

from clockhands.errors import UsageError
from clockhands.generation.engines import DecodedSequence, DecodingOptions, Engine, get_end_tokens, get_start_token
from clockhands.shapes import Bool, Int, Tensor

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel

LOGITS_AT_ONCE = 1 << 25
"""Logits that exist at a time while texts are scored (128 MiB in float32)."""


class TransformersEngine(Engine):
    """Every model, by ``generate`` of transformers, in the type of the model's weights.

    Raises UsageError for another compute type than that of the weights.
    """

    def __init__(self, model: ClockhandsPreTrainedModel, compute_type: str | None = None) -> None:
        super().__init__(model, compute_type)
        weight_type = str(next(model.parameters()).dtype).removeprefix("torch.")
        if self.compute_type != weight_type:
            raise UsageError(
                f"compute_type is {self.compute_type!r}, but the engine transformers computes in the type of the "
                f"weights, and those of this model are {weight_type}; leave it out, or choose another engine for it, "
                "such as ctranslate2"
            )
        self.start_token, self.end_tokens = get_start_token(model), get_end_tokens(model)

    @torch.no_grad()
    def generate(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, decoding: DecodingOptions
    ) -> list[DecodedSequence]:
        """Generate a text for each source, in order; see ``Engine.generate``."""
        mask_BT = torch.ones_like(ids_BT, dtype=torch.bool) if mask_BT is None else mask_BT
        model: Any = self.model  # its base class does not declare what transformers gives it
        source: BaseModelOutput = model.get_encoder()(ids_BT, mask_BT)
        # A configuration of its own: that of the model may ask for sampling, or for other beams.
        config = GenerationConfig(
            max_new_tokens=decoding.max_new_tokens,
            num_beams=decoding.beam,
            do_sample=False,
            length_penalty=decoding.length_penalty,
            early_stopping=False,
            decoder_start_token_id=self.start_token,
            eos_token_id=self.end_tokens or None,
            pad_token_id=self.end_tokens[0] if self.end_tokens else self.start_token,
        )
        # generate repeats the states of the source for a beam in place, and they are needed once more.
        again = BaseModelOutput(last_hidden_state=source[0])
        written = model.generate(encoder_outputs=again, attention_mask=mask_BT, generation_config=config)
        texts = []
        for row in written[:, 1:].tolist():
            ends = (place for place, token in enumerate(row, 1) if token in self.end_tokens)
            texts.append(row[: next(ends, len(row))])
        return list(map(DecodedSequence, texts, self._score(source[0], mask_BT, texts)))

    def _score(self, states_BTD: Tensor, mask_BT: Tensor, texts: list[list[int]]) -> list[float]:
        """Return the log-probability of each text, by reading it once.

        ``generate`` would keep the logits of all steps for it.
        """
        longest = max(map(len, texts))
        read_BS = states_BTD.new_full((len(texts), longest), self.start_token, dtype=torch.long)
        for row, text in enumerate(texts):
            read_BS[row, : len(text)] = read_BS.new_tensor(text)
        before_BS = torch.cat([read_BS.new_full((len(texts), 1), self.start_token), read_BS[:, :-1]], dim=1)
        rows = max(1, LOGITS_AT_ONCE // (longest * self.model.config.vocab_size))
        scores: list[float] = []
        for start in range(0, len(texts), rows):
            part = slice(start, start + rows)
            logits_BSV = self.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=states_BTD[part]), attention_mask=mask_BT[part],
                decoder_input_ids=before_BS[part], use_cache=False,
            ).logits  # fmt: skip
            log_p_BSV = logits_BSV.float().log_softmax(-1)
            log_p_BS = log_p_BSV.gather(-1, read_BS[part][..., None])[..., 0]
            scores += [float(log_p_BS[row, : len(text)].sum()) for row, text in enumerate(texts[part])]
        return scores
