"""The models as transformers runs them: ``from_pretrained``, ``generate``, Trainer and Auto classes."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    GenerationMixin,
    PreTrainedModel,
)
from transformers import initialization as guarded
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, MaskedLMOutput, Seq2SeqLMOutput

from clockhands.errors import CheckpointError, PositionError
from clockhands.model.config import Architecture
from clockhands.model.huggingface_config import ClockhandsConfig
from clockhands.model.loss import IGNORED, LabelSmoothing, cross_entropy
from clockhands.model.masks import Encoded, Text
from clockhands.model.transformer import Transformer
from clockhands.schemes import Scheme

__all__ = [
    "MODEL_CLASSES",
    "CacheAwareGenerationMixin",
    "ClockhandsForCausalLM",
    "ClockhandsForMaskedLM",
    "ClockhandsForSeq2SeqLM",
    "ClockhandsPreTrainedModel",
    "EncoderWrapper",
    "Mask",
    "ModelClass",
    "as_mask",
    "is_loaded",
    "reset_missing",
    "shift_right",
]

Mask = torch.Tensor | None


class ClockhandsPreTrainedModel(PreTrainedModel):
    """The part that the three models share: a ``Transformer``, its initialisation, its tied matrices, the loss."""

    config_class = ClockhandsConfig
    base_model_prefix = "model"
    config: ClockhandsConfig
    main_input_name = "input_ids"
    accepts_loss_kwargs = True
    _supports_sdpa = True
    _can_compile_fullgraph = False  # generate must not compile by itself: not every scheme is traced with a cache
    kind: ClassVar[Architecture]

    def __init__(self, config: ClockhandsConfig) -> None:
        super().__init__(config)
        architecture = config.core
        if architecture.kind != self.kind:
            right = MODEL_CLASSES[architecture.kind]
            raise CheckpointError(
                f"this configuration is of kind {architecture.kind!r}, and {type(self).__name__} needs {self.kind!r}; "
                f"use {right.model.__name__} ({right.auto.__name__})"
            )
        self.model = Transformer(architecture)
        self._tied_weights_keys = {f"model.{name}": f"model.{source}" for name, source in self.model.tied().items()}
        self.post_init()

    @torch.no_grad()
    @guarded.guard_torch_init_functions()
    def initialize_weights(self) -> None:
        """Draw the parameters that no checkpoint holds; transformers marks what was loaded, and guards it."""
        self.model.initialise()
        self.model.restore_tables()
        for module in self.modules():
            if isinstance(module, (Scheme, nn.LayerNorm, nn.RMSNorm)):
                reset_missing(module)

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding of the encoder, or of the decoder where there is no encoder."""
        stack = self.model.encoder or self.model.decoder
        assert stack is not None
        return stack.input.tokens

    def get_output_embeddings(self) -> nn.Module:
        """Return the output layer."""
        return self.model.output

    def create_masks_for_generate(self, *, attention_mask: Mask = None, **_: Any) -> Mask:
        """Return the mask as it is: the model makes the whole mask itself."""
        return attention_mask

    def compute_loss_and_logits(
        self,
        states_BSD: torch.Tensor,
        labels: torch.Tensor | None,
        logits_to_keep: int | torch.Tensor,
        num_items_in_batch: int | torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Compute loss and logits. While training with labels there are no logits: they never exist whole."""
        output = self.model.output
        loss = logits = None
        if labels is not None:
            smoothing = self.config.target if self.training else LabelSmoothing()
            loss = cross_entropy(
                output.prepare(states_BSD), output.weight, output.bias, labels, smoothing, num_items_in_batch
            )
        if labels is None or not self.training:
            # 0 keeps the logits of all tokens, n those of the last n, as in transformers.
            kept = slice(-logits_to_keep or None, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = output(states_BSD[:, kept])
        return loss, logits


def is_loaded(parameter: torch.Tensor) -> bool:
    """Return whether transformers has filled a parameter from a checkpoint."""
    return getattr(parameter, "_is_hf_initialized", False)


def reset_missing(module: Scheme | nn.LayerNorm | nn.RMSNorm) -> None:
    """Reset the parameters of a module that no checkpoint has filled, and leave the others as they are."""
    loaded = {parameter: parameter.clone() for parameter in module.parameters() if is_loaded(parameter)}
    if loaded and len(loaded) == len(list(module.parameters())):
        return
    # A scheme resets all that it has, by whatever means: what was loaded is put back.
    module.reset_parameters()
    for parameter, value in loaded.items():
        parameter.copy_(value)


def as_mask(mask: Mask) -> Mask:
    """Return a padding mask [B, T] as booleans. Raises PositionError for any other form."""
    if mask is None:
        return None
    if mask.dim() != 2:
        raise PositionError(
            f"a mask marks real tokens as [batch, length]; this one has the shape {tuple(mask.shape)}; "
            f"pass the padding mask alone, the model adds causality"
        )
    return mask.bool()


class CacheAwareGenerationMixin(GenerationMixin):
    """``generate``, which uses no KV cache by default where cached keys would become stale."""

    model: Transformer

    def generate(self, *inputs: Any, **options: Any) -> Any:
        """Generate as in transformers; ``use_cache`` is off by default where cached keys could become stale."""
        if self.model.output_stack.cache_limit and options.get("generation_config") is None:
            options.setdefault("use_cache", False)
        return super().generate(*inputs, **options)  # type: ignore[misc]


class ClockhandsForSeq2SeqLM(ClockhandsPreTrainedModel, CacheAwareGenerationMixin):
    """Encoder and decoder: translation and everything else that reads one text and writes another."""

    kind = "encoder-decoder"

    def get_encoder(self, *_: Any, **__: Any) -> nn.Module:
        """Return the encoder as ``generate`` calls it."""
        return EncoderWrapper(self)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: Mask = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: Mask = None,
        labels: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        decoder_document_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: EncoderDecoderCache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Seq2SeqLMOutput | tuple[Any, ...]:
        """Compute logits [B, S, V], and the loss if ``labels`` are given (-100: nothing to learn there).

        ``document_ids`` number documents packed into a row, in the source and in the target; tokens attend to those of
        equal number. ``num_items_in_batch`` divides the loss instead of the number of labels. Raises PositionError
        where there is no source or no target.
        """
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = shift_right(labels, self.config)
        if decoder_input_ids is None:
            raise PositionError("the decoder has nothing to read: pass decoder_input_ids or labels")
        source_states: list[torch.Tensor] | None = [] if output_hidden_states else None
        states: list[torch.Tensor] | None = [] if output_hidden_states else None
        source = self.encode_source(
            input_ids, attention_mask, position_ids, document_ids, encoder_outputs, source_states
        )
        cache = past_key_values
        if cache is None and use_cache and not self.training:
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        text = Text(decoder_input_ids, as_mask(decoder_attention_mask), decoder_position_ids, decoder_document_ids)
        self_cache, cross_cache = (
            (None, None) if cache is None else (cache.self_attention_cache, cache.cross_attention_cache)
        )
        hidden = self.model.decode(text, source, self_cache, cross_cache, states)
        loss, logits = self.compute_loss_and_logits(hidden, labels, logits_to_keep, num_items_in_batch)
        output = Seq2SeqLMOutput(
            loss=loss, logits=logits, past_key_values=cache, encoder_last_hidden_state=source.states_BTD,
            decoder_hidden_states=None if states is None else tuple(states),
            # Empty if they were asked for and ``encoder_outputs`` did not hold them.
            encoder_hidden_states=tuple(source_states) if source_states else None,
        )  # fmt: skip
        return output.to_tuple() if return_dict is False else output

    def encode_source(
        self,
        input_ids: torch.Tensor | None,
        mask: Mask,
        position_ids: torch.Tensor | None,
        document_ids: torch.Tensor | None,
        encoder_outputs: Any,
        states: list[torch.Tensor] | None = None,
    ) -> Encoded:
        """Encode the source, or rebuild it from ``encoder_outputs``; states of all layers are added to ``states``.

        Raises PositionError where there is neither.
        """
        if encoder_outputs is None:
            if input_ids is None:
                raise PositionError("there is no source: pass input_ids or encoder_outputs")
            return self.model.encode(Text(input_ids, as_mask(mask), position_ids, document_ids), states)
        states_BTD = encoder_outputs[0]
        if states is not None:
            states.extend(getattr(encoder_outputs, "hidden_states", None) or ())
        # The ids are not known; of these only the shape [B, T] and the device are read.
        text = Text(
            states_BTD.new_zeros(states_BTD.shape[:2], dtype=torch.long), as_mask(mask), position_ids, document_ids
        )
        return self.model.rebuild_source(states_BTD, text)


class EncoderWrapper(nn.Module):
    """The encoder as ``generate`` calls it. It owns no parameters: the model does."""

    main_input_name = "input_ids"

    def __init__(self, owner: ClockhandsForSeq2SeqLM) -> None:
        super().__init__()
        self._owner = (owner,)  # in a tuple, so that nn.Module does not register the model as a part of this

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: Mask = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        return_dict: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutput:
        """Encode a source: the last states, [B, T, D], and all others if ``output_hidden_states`` is set.

        ``output_attentions`` is there because ``generate`` passes it, and is ignored: ``attention.record`` gives the
        weights.
        """
        states: list[torch.Tensor] | None = [] if output_hidden_states else None
        source = self._owner[0].encode_source(input_ids, attention_mask, position_ids, document_ids, None, states)
        return BaseModelOutput(source.states_BTD, hidden_states=None if states is None else tuple(states))


class ClockhandsForCausalLM(ClockhandsPreTrainedModel, CacheAwareGenerationMixin):
    """The decoder alone: a language model. ``labels`` are shifted inside, as everywhere in transformers."""

    kind = "decoder"

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: Mask = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Compute logits [B, S, V], and the loss if ``labels`` are given.

        The loss is of predicting each label from the tokens before it.
        """
        if past_key_values is None and use_cache and not self.training:
            past_key_values = DynamicCache()
        states: list[torch.Tensor] | None = [] if output_hidden_states else None
        text = Text(input_ids, as_mask(attention_mask), position_ids, document_ids)
        hidden = self.model.decode(text, cache=past_key_values, states=states)
        following = None if labels is None else nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        loss, logits = self.compute_loss_and_logits(hidden, following, logits_to_keep, num_items_in_batch)
        output = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=past_key_values,
            hidden_states=None if states is None else tuple(states),
        )
        return output.to_tuple() if return_dict is False else output


class ClockhandsForMaskedLM(ClockhandsPreTrainedModel):
    """The encoder alone: every token is predicted from all others; ``labels`` are -100 where nothing is masked."""

    kind = "encoder"

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: Mask = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> MaskedLMOutput | tuple[Any, ...]:
        """Compute logits [B, S, V], and the loss over the labels if ``labels`` are given."""
        states: list[torch.Tensor] | None = [] if output_hidden_states else None
        encoded = self.model.encode(Text(input_ids, as_mask(attention_mask), position_ids, document_ids), states)
        loss, logits = self.compute_loss_and_logits(encoded.states_BTD, labels, 0, num_items_in_batch)
        output = MaskedLMOutput(loss=loss, logits=logits, hidden_states=None if states is None else tuple(states))
        return output.to_tuple() if return_dict is False else output


def shift_right(labels: torch.Tensor, config: ClockhandsConfig) -> torch.Tensor:
    """Return what the decoder reads while it learns ``labels``: the start token, then every label but the last."""
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    if start is None:
        raise CheckpointError("the decoder needs a start token: set decoder_start_token_id or bos_token_id")
    shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
    # Ignored labels are padding at the end, where nothing is learnt: without a padding token any id serves.
    return shifted.masked_fill(shifted == IGNORED, config.pad_token_id or 0)


class ModelClass(NamedTuple):
    """The class of the models of one architecture, and the Auto class of transformers that opens them."""

    model: type[ClockhandsPreTrainedModel]
    auto: Any


MODEL_CLASSES: dict[Architecture, ModelClass] = {
    "encoder-decoder": ModelClass(ClockhandsForSeq2SeqLM, AutoModelForSeq2SeqLM),
    "decoder": ModelClass(ClockhandsForCausalLM, AutoModelForCausalLM),
    "encoder": ModelClass(ClockhandsForMaskedLM, AutoModelForMaskedLM),
}
"""By architecture; all of them share ``ClockhandsConfig``."""

for _model, _auto in MODEL_CLASSES.values():
    _auto.register(ClockhandsConfig, _model, exist_ok=True)
