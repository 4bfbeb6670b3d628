"""The models as transformers runs them: ``from_pretrained``, ``generate``, Trainer and Auto classes.

That of two stacks is in ``huggingface_seq2seq``; those of one stack are here.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput
from transformers.utils.generic import can_return_tuple

from clockhands.model.huggingface_base import (
    MODEL_CLASSES,
    CacheAwareGenerationMixin,
    ClockhandsPreTrainedModel,
    PaddingMask,
    check_padding_mask,
    register_model,
    to_state_tuple,
)
from clockhands.model.huggingface_cache import choose_cache, name_cache
from clockhands.model.huggingface_config import ClockhandsConfig
from clockhands.model.huggingface_seq2seq import ClockhandsForSeq2SeqLM
from clockhands.model.loss import IGNORED_LABEL
from clockhands.model.token_batch import TokenBatch

__all__ = [
    "MODEL_CLASSES",
    "ClockhandsConfig",
    "ClockhandsForCausalLM",
    "ClockhandsForMaskedLM",
    "ClockhandsForSeq2SeqLM",
]


@register_model("decoder", AutoModelForCausalLM)
class ClockhandsForCausalLM(ClockhandsPreTrainedModel, CacheAwareGenerationMixin):
    """The decoder alone: a language model. ``labels`` are shifted inside, as everywhere in transformers."""

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: PaddingMask = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        cache: Cache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        past_key_values: Cache | None = None,
    ) -> CausalLMOutputWithPast:
        """Compute logits [B, S, V], and the loss if ``labels`` [B, S] are given (-100: nothing to learn there).

        The loss is that of predicting each label from the tokens before it; while training with labels, the logits are
        None. The other arguments are those of ``ClockhandsForSeq2SeqLM.forward`` for its target. Raises UsageError
        for a mask that is not [B, T] (``check_padding_mask``) and for two KV caches (``choose_cache``), and
        PositionError as ``Transformer.decode``.
        """
        cache = choose_cache(cache, past_key_values)
        if cache is None and self.wants_cache(use_cache, labels):
            cache = DynamicCache()
        layer_states = self.make_layer_state_list(output_hidden_states)
        tokens = TokenBatch(input_ids, check_padding_mask(attention_mask), position_ids, document_ids)
        states_BSD = self.transformer.decode(tokens, cache=cache, layer_states=layer_states)
        next_labels = None if labels is None else nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL)
        loss, logits = self.compute_loss_and_logits(states_BSD, next_labels, logits_to_keep, num_items_in_batch)
        return CausalLMOutputWithPast(
            loss=loss, logits=logits, hidden_states=to_state_tuple(layer_states), **name_cache(cache)
        )


@register_model("encoder", AutoModelForMaskedLM)
class ClockhandsForMaskedLM(ClockhandsPreTrainedModel):
    """The encoder alone: masked tokens are predicted, and ``labels`` are -100 at all others.

    They are predicted from both directions, or with ``causal_encoder`` from the tokens before them alone.
    """

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: PaddingMask = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
    ) -> MaskedLMOutput:
        """Compute logits [B, S, V], and the loss if ``labels`` [B, S] are given (-100: nothing to learn there).

        While training with labels, the logits are None. The other arguments are those of
        ``ClockhandsForSeq2SeqLM.forward`` for its source. Raises UsageError for a mask that is not [B, T]
        (``check_padding_mask``), and PositionError as ``Transformer.encode``.
        """
        layer_states = self.make_layer_state_list(output_hidden_states)
        tokens = TokenBatch(input_ids, check_padding_mask(attention_mask), position_ids, document_ids)
        encoded = self.transformer.encode(tokens, layer_states)
        loss, logits = self.compute_loss_and_logits(encoded.states_BTD, labels, 0, num_items_in_batch)
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=to_state_tuple(layer_states))
