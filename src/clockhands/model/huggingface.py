"""The models as transformers runs them: ``from_pretrained``, ``generate``, Trainer and Auto classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, MaskedLMOutput, Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from clockhands.errors import UsageError
from clockhands.model.huggingface_base import (
    MODEL_CLASSES,
    CacheAwareGenerationMixin,
    ClockhandsConfig,
    ClockhandsPreTrainedModel,
    PaddingMask,
    check_padding_mask,
    choose_cache,
    name_cache,
    register_model,
    to_state_tuple,
)
from clockhands.model.loss import IGNORED_LABEL, shift_right
from clockhands.model.masks import EncodedSource, TokenBatch

__all__ = [
    "MODEL_CLASSES", "ClockhandsConfig", "ClockhandsForCausalLM", "ClockhandsForMaskedLM", "ClockhandsForSeq2SeqLM",
]  # fmt: skip


@register_model("encoder-decoder", AutoModelForSeq2SeqLM)
class ClockhandsForSeq2SeqLM(ClockhandsPreTrainedModel, CacheAwareGenerationMixin):
    """Encoder and decoder: translation and everything else that reads one text and writes another."""

    def get_encoder(self, *_: Any, **__: Any) -> nn.Module:
        """Return the encoder as ``generate`` calls it."""
        return _EncoderWrapper(self)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: PaddingMask = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: PaddingMask = None,
        labels: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        decoder_document_ids: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        past_key_values: Cache | None = None,
    ) -> Seq2SeqLMOutput:
        """Compute logits [B, S, V], and the loss if ``labels`` [B, S] are given (-100: nothing to learn there).

        While training with labels, the logits are None. The source has ids, positions and documents of [B, T], the
        target (``decoder_...``) of [B, S]; positions may be [B, T, A] or [B, S, A], and are counted if not given.
        ``document_ids`` number documents packed into a row, in the source and in the target; tokens attend to those of
        equal number. ``num_items_in_batch`` divides the loss instead of the number of labels. Raises UsageError where
        there is no source or no target, for a mask that is not [B, T] (``check_padding_mask``) and for a KV cache of
        one attention alone; CheckpointError where labels need a start token and there is none (``shift_right``); and
        PositionError as ``Transformer.encode`` and ``Transformer.decode``.
        """
        if decoder_input_ids is None:
            if labels is None:
                raise UsageError("the decoder has nothing to read: pass decoder_input_ids or labels")
            decoder_input_ids = shift_right(labels, self.config)
        mask_BT = check_padding_mask(decoder_attention_mask)
        tokens = TokenBatch(decoder_input_ids, mask_BT, decoder_position_ids, decoder_document_ids)
        layer_states, encoder_layer_states = (self.make_layer_state_list(output_hidden_states) for _ in range(2))
        source = self.encode_source(
            input_ids, attention_mask, position_ids, document_ids, encoder_outputs, encoder_layer_states
        )
        cache = choose_cache(cache, past_key_values)
        if cache is None and self.wants_cache(use_cache, labels):
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        if not isinstance(cache, EncoderDecoderCache | None):
            raise UsageError(
                f"the KV cache is a {type(cache).__name__}, but an encoder-decoder needs a cache for each of its "
                "two attentions; pass EncoderDecoderCache(DynamicCache(), DynamicCache())"
            )
        own, cross = (None, None) if cache is None else (cache.self_attention_cache, cache.cross_attention_cache)
        states_BSD = self.transformer.decode(tokens, source, own, cross, layer_states)
        loss, logits = self.compute_loss_and_logits(states_BSD, labels, logits_to_keep, num_items_in_batch)
        return Seq2SeqLMOutput(
            loss=loss, logits=logits, encoder_last_hidden_state=source.states_BTD, **name_cache(cache),
            decoder_hidden_states=to_state_tuple(layer_states),
            # ``encoder_outputs`` may lack the states of the layers: the list is then empty.
            encoder_hidden_states=to_state_tuple(encoder_layer_states or None),
        )  # fmt: skip

    def encode_source(
        self,
        input_ids: torch.Tensor | None,
        mask_BT: PaddingMask,
        position_ids: torch.Tensor | None,
        document_ids: torch.Tensor | None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None,
        layer_states: list[torch.Tensor] | None = None,
    ) -> EncodedSource:
        """Encode the source, or rebuild it from ``encoder_outputs``.

        The states of all layers are appended to ``layer_states`` if that is a list. Raises UsageError where there is
        no source and for a mask that is not [B, T], and PositionError as ``Transformer.encode``.
        """
        mask_BT = check_padding_mask(mask_BT)
        if encoder_outputs is None:
            if input_ids is None:
                raise UsageError("there is no source: pass input_ids or encoder_outputs")
            return self.transformer.encode(TokenBatch(input_ids, mask_BT, position_ids, document_ids), layer_states)
        states_BTD = encoder_outputs[0]
        if layer_states is not None:
            layer_states.extend(getattr(encoder_outputs, "hidden_states", None) or ())
        # The ids are not known; only their shape [B, T] and their device are read.
        unknown_BT = states_BTD.new_zeros(states_BTD.shape[:2], dtype=torch.long)
        return self.transformer.rebuild_source(states_BTD, TokenBatch(unknown_BT, mask_BT, position_ids, document_ids))


class _EncoderWrapper(nn.Module):
    """The encoder as ``generate`` calls it. It owns no parameters: the model does."""

    main_input_name = "input_ids"

    def __init__(self, model: ClockhandsForSeq2SeqLM) -> None:
        super().__init__()
        self._model = (model,)  # in a tuple, so that nn.Module does not register it as a submodule

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: PaddingMask = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutput:
        """Encode a source: the last states, [B, T, D], and all others if ``output_hidden_states`` is set.

        ``output_attentions`` is there because ``generate`` passes it, and is ignored: ``attention.record`` gives the
        weights. Raises what ``ClockhandsForSeq2SeqLM.encode_source`` raises.
        """
        model = self._model[0]
        layer_states = model.make_layer_state_list(output_hidden_states)
        source = model.encode_source(input_ids, attention_mask, position_ids, document_ids, None, layer_states)
        return BaseModelOutput(source.states_BTD, hidden_states=to_state_tuple(layer_states))


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
