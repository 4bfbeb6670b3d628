"""What the three models share with transformers: configuration, initialisation, loss, padding masks, KV cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, TypeVar, get_args

import torch
from torch import nn
from transformers import AutoConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers import initialization as hf_initialization
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.generation.configuration_utils import GenerationMode
from transformers.modeling_outputs import CausalLMOutputWithPast

from clockhands.errors import CheckpointError, ConfigError, PositionError, UsageError, describe_unknown
from clockhands.model.config import TransformerConfig, keep_config, read_config
from clockhands.model.kv_cache import find_window
from clockhands.model.loss import LabelSmoothing, SmoothingMode
from clockhands.model.loss import cross_entropy as compute_cross_entropy
from clockhands.model.masks import has_padding_after_tokens
from clockhands.model.position_config import Architecture
from clockhands.model.stack import Stack
from clockhands.model.transformer import Transformer
from clockhands.schemes import Scheme

SPECIAL_TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
"""Keys of a configuration that hold the id of a token, or several."""


class ClockhandsConfig(PreTrainedConfig):
    """A Clockhands Transformer for transformers: ``config.json`` with a ``TransformerConfig`` under ``transformer``.

    Args:
        transformer: a ``TransformerConfig``, or its table (``to_dict()``), validated here; missing keys take their
            defaults.
        label_smoothing: the rate of label smoothing in the training loss; evaluation never smooths.
        smoothing: which tokens share that rate: the ``mode`` of ``loss.LabelSmoothing``.
        pad_token_id, bos_token_id, eos_token_id, decoder_start_token_id: as everywhere in transformers; ids of the
            vocabulary that is written.
        use_cache: whether ``generate``, and a forward pass outside training without labels, use a KV cache when their
            caller does not say; where cached keys could become stale they do not, whatever is set here.
        tokenizer_fingerprint: that of the tokenizers that the model was trained with (``Tokenizers.fingerprint``), with
            which an opened tokenizer is compared; None: not known, and nothing is compared.

    Raises ConfigError with one sentence for everything that is wrong with the ``TransformerConfig``, or else with the
    loss, or else with the ids.
    """

    model_type = "clockhands"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]  # noqa: RUF012 - transformers' own form

    def __init__(
        self,
        # Any: a config.json may hold anything, and what it holds is judged below.
        transformer: Any = None,
        label_smoothing: Any = 0.0,
        smoothing: Any = "all",
        pad_token_id: Any = None,
        bos_token_id: Any = None,
        eos_token_id: Any = None,
        decoder_start_token_id: Any = None,
        use_cache: bool = True,
        tokenizer_fingerprint: Any = None,
        **kwargs: Any,
    ) -> None:
        is_validated = isinstance(transformer, TransformerConfig)
        validated = transformer if is_validated else read_config(transformer or {})
        self.transformer = validated.to_dict()
        keep_config(validated, self.transformer)
        self.label_smoothing, self.smoothing, self.use_cache = label_smoothing, smoothing, use_cache
        self.pad_token_id, self.bos_token_id, self.eos_token_id = pad_token_id, bos_token_id, eos_token_id
        self.decoder_start_token_id, self.tokenizer_fingerprint = decoder_start_token_id, tokenizer_fingerprint
        faults = []
        if not isinstance(label_smoothing, (int, float)) or not isinstance(smoothing, str):
            both = f"label_smoothing is {label_smoothing!r} and smoothing {smoothing!r}"
            raise ConfigError([f"{both}; they must be a number and a name"], "the training loss")
        if not 0 <= label_smoothing < 1:
            faults.append(f"label_smoothing is {label_smoothing}; it must be at least 0 and below 1")
        if smoothing not in get_args(SmoothingMode):
            faults.append(describe_unknown("smoothing", smoothing, get_args(SmoothingMode)))
        if smoothing == "others-but-pad" and pad_token_id is None:
            faults.append("smoothing is 'others-but-pad', which needs pad_token_id")
        if faults:
            raise ConfigError(faults, "the training loss")
        faults = find_id_faults({name: getattr(self, name) for name in SPECIAL_TOKEN_IDS}, validated.vocab_size)
        if faults:
            raise ConfigError(faults, "the configuration")
        kwargs["is_encoder_decoder"] = validated.architecture == "encoder-decoder"
        kwargs["tie_word_embeddings"] = validated.tying != "none"
        super().__init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Make a configuration from the content of a file."""
        saved = dict(config_dict)
        # ``auto_map`` names a file of code in the folder that is read. Kept here, it would be saved with the model into
        # another folder, where that file is not.
        saved.pop("auto_map", None)
        return super().from_dict(saved, **kwargs)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Do nothing: otherwise transformers would copy a file of this package into every folder that it saves to."""

    @property
    def transformer_config(self) -> TransformerConfig:
        """The validated configuration of the ``Transformer``."""
        return read_config(self.transformer)

    def find_start_token(self) -> int | None:
        """Return the token from which the decoder starts: ``decoder_start_token_id``, or if None, ``bos_token_id``."""
        start: int | None = self.decoder_start_token_id
        return self.bos_token_id if start is None else start

    @property
    def vocab_size(self) -> int:
        """The number of tokens that the model writes."""
        return self.transformer_config.vocab_size

    @property
    def hidden_size(self) -> int:
        """The width of the model, d_model."""
        return self.transformer_config.d_model

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers of the decoder, or of the encoder where there is no decoder."""
        return self.transformer_config.count_layers(
            "encoder" if self.transformer_config.architecture == "encoder" else "decoder"
        )

    @property
    def num_attention_heads(self) -> int:
        """The number of heads of queries."""
        return self.transformer_config.num_heads

    @property
    def head_dim(self) -> int:
        """The width of one head."""
        return self.transformer_config.resolved_head_dim


def find_id_faults(ids: Mapping[str, Any], vocabulary_size: int) -> list[str]:
    """Return which special tokens have an id that is not in the vocabulary, one sentence each.

    ``ids``: an id, a list of ids, or None (there is no such token) for each name.
    """
    return [
        f"{name} is {token_id!r}; it must be the id of a token, from 0 to {vocabulary_size - 1:,}"
        for name, value in ids.items()
        for token_id in (value if isinstance(value, list) else [value])
        if token_id is not None and (not isinstance(token_id, int) or not 0 <= token_id < vocabulary_size)
    ]


AutoConfig.register(ClockhandsConfig.model_type, ClockhandsConfig, exist_ok=True)


CACHE_NAME = "cache" if "cache" in {field.name for field in fields(CausalLMOutputWithPast)} else "past_key_values"
"""``cache`` since transformers 5.24, which takes the older name too and warns; ``past_key_values`` before."""


def choose_cache(cache: Cache | None, past_key_values: Cache | None) -> Cache | None:
    """Return the KV cache that was passed under either name, or None. Raises UsageError for one under each."""
    if cache is not None and past_key_values is not None:
        raise UsageError("cache and past_key_values are two names of the same KV cache; pass one of them")
    return past_key_values if cache is None else cache


def name_cache(cache: Any) -> dict[str, Any]:
    """Return a KV cache as the named argument, or the field of an output, that transformers calls it."""
    return {CACHE_NAME: cache}


def get_cache(output: Any) -> Any:
    """Return the KV cache of an output of ``forward`` or ``generate``; None where it has none."""
    return getattr(output, CACHE_NAME, None)


# It would be compiled again for every batch, as the number of labelled rows differs. Here, since the compiler is
# imported with transformers in any case, and takes three seconds.
cross_entropy = torch.compiler.disable(compute_cross_entropy)
PaddingMask = torch.Tensor | None
"""[B, T], 1 or True at tokens and 0 or False at padding; None: there is no padding."""


class ClockhandsPreTrainedModel(PreTrainedModel):
    """The base of the three models: a ``Transformer``, its initialisation, its tied matrices, and the loss.

    ``architecture``: the one that a subclass runs. ``auto_class``: the Auto class of transformers that opens it. Raises
    CheckpointError for a configuration of another architecture.
    """

    config_class = ClockhandsConfig
    base_model_prefix = "model"
    config: ClockhandsConfig
    main_input_name = "input_ids"
    accepts_loss_kwargs = True  # the Trainer passes num_items_in_batch to ``forward``
    _supports_sdpa = True  # so that attn_implementation="sdpa" is no error; ``attend`` chooses its kernel itself
    _can_compile_fullgraph = False  # generate must not compile by itself: not every scheme can be traced with a cache
    architecture: ClassVar[Architecture]
    auto_class: ClassVar[Any]  # the Auto classes of transformers have no public base

    def __init__(self, config: ClockhandsConfig) -> None:
        super().__init__(config)
        architecture = config.transformer_config.architecture
        if architecture != self.architecture:
            right = MODEL_CLASSES[architecture]
            raise CheckpointError(
                f"this configuration has the architecture {architecture!r}, and {type(self).__name__} needs "
                f"{self.architecture!r}; use {right.__name__} ({right.auto_class.__name__})"
            )
        self.model = Transformer(config.transformer_config)
        self._tied_weights_keys = {
            f"model.{name}": f"model.{owner}" for name, owner in self.model.map_tied_parameters().items()
        }
        self.post_init()

    @property
    def transformer(self) -> Transformer:
        """The ``Transformer`` inside: the attribute ``model``, after which checkpoints name its parameters."""
        return self.model

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """Do nothing: otherwise transformers would copy a file of this package into every folder that it saves to."""

    @torch.no_grad()
    @hf_initialization.guard_torch_init_functions()
    def initialize_weights(self) -> None:
        """Draw the parameters that no checkpoint has filled.

        transformers calls it at the end of the construction, when all are drawn once more, and after loading a
        checkpoint: it marks the parameters that it has filled, and keeps ``torch.nn.init`` from changing them.
        """
        self.transformer.initialise()
        self.transformer.restore_tables()
        for module in self.modules():
            if not isinstance(module, (Scheme, nn.LayerNorm, nn.RMSNorm)):
                continue
            own = list(module.parameters())
            loaded = [parameter for parameter in own if getattr(parameter, "_is_hf_initialized", False)]
            if not loaded or len(loaded) < len(own):
                # It resets every parameter of a scheme, and does not ask whether it was loaded: those are restored.
                kept = [parameter.clone() for parameter in loaded]
                module.reset_parameters()
                for parameter, value in zip(loaded, kept, strict=True):
                    parameter.copy_(value)

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding of the encoder, or of the decoder where there is no encoder."""
        return self.transformer.input_stack.input.tokens

    def get_output_embeddings(self) -> nn.Module:
        """Return the output layer."""
        return self.transformer.output

    def create_masks_for_generate(self, *, attention_mask: PaddingMask = None, **_: Any) -> PaddingMask:
        """Return the padding mask unchanged: the model adds causality itself."""
        return attention_mask

    def make_layer_state_list(self, requested: bool | None) -> list[torch.Tensor] | None:
        """Return an empty list, to which the model appends the states of all layers, or None if they are not wanted.

        ``requested`` is ``output_hidden_states`` of the call; None takes that of the configuration.
        """
        return [] if (self.config.output_hidden_states if requested is None else requested) else None

    def wants_cache(self, requested: bool | None, labels: torch.Tensor | None) -> bool:
        """Return whether a forward pass without a KV cache makes one: never in training.

        ``requested`` is ``use_cache`` of the call; None takes that of the configuration, where a cache can be of use:
        not with labels, since nothing continues such a pass, nor where cached keys could become stale.
        """
        if self.training or requested is not None:
            return bool(requested) and not self.training
        return bool(self.config.use_cache) and labels is None and self.transformer.output_stack.cache_limit is None

    def compute_loss_and_logits(
        self,
        states_BSD: torch.Tensor,
        labels_BS: torch.Tensor | None,
        logits_to_keep: int | torch.Tensor,
        num_items_in_batch: int | torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Compute the loss and the logits [B, S, V] of last states; without labels, there is no loss.

        While training with labels there are no logits, as those of a batch never exist whole. ``logits_to_keep``: n
        gives the logits of the last n tokens, 0 those of all, and a tensor holds the indices of the tokens, as in
        transformers.
        """
        output = self.transformer.output
        loss = logits = None
        if labels_BS is not None:
            config, smoothing = self.config, LabelSmoothing()
            if self.training:
                smoothing = LabelSmoothing(config.label_smoothing, config.smoothing, config.pad_token_id)
            loss = cross_entropy(
                output.prepare_states(states_BSD), output.weight, output.bias, labels_BS, smoothing, num_items_in_batch
            )
        if labels_BS is None or not self.training:
            kept = slice(-logits_to_keep or None, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = output(states_BSD[:, kept])
        return loss, logits


MODEL_CLASSES: dict[Architecture, type[ClockhandsPreTrainedModel]] = {}
"""The class of each architecture; ``clockhands.model.huggingface`` fills it. All share ``ClockhandsConfig``."""

ModelClass = TypeVar("ModelClass", bound=type[ClockhandsPreTrainedModel])


def register_model(architecture: Architecture, auto_class: Any) -> Callable[[ModelClass], ModelClass]:
    """Return a decorator that makes a class the model of an architecture, also for an Auto class of transformers."""

    def register(model_class: ModelClass) -> ModelClass:
        model_class.architecture, model_class.auto_class = architecture, auto_class
        MODEL_CLASSES[architecture] = model_class
        auto_class.register(ClockhandsConfig, model_class, exist_ok=True)
        return model_class

    return register


class CacheAwareGenerationMixin(GenerationMixin):
    """The ``generate`` of transformers; by default, it uses no KV cache where cached keys could become stale."""

    config: ClockhandsConfig
    model: Transformer

    def generate(self, inputs: Any = None, generation_config: Any = None, *arguments: Any, **options: Any) -> Any:
        """Generate as in transformers, without a KV cache where cached keys could become stale.

        A ``use_cache`` or a ``generation_config`` that the call passes is obeyed. Raises PositionError where that makes
        it use keys that are stale, and for packed documents in the text to be continued, whose new tokens belong to
        none of them; and ValueError if ``output_attentions`` is set: these models do not return their attention
        weights.
        """
        packed = "decoder_document_ids" if self.config.is_encoder_decoder else "document_ids"
        if options.get(packed) is not None:
            raise PositionError(
                f"packed documents cannot be continued: generate adds tokens to a row, and {packed} does not say to "
                "which document they belong; generate for each document alone"
            )
        settings = generation_config or self.generation_config
        if options.get("output_attentions", settings.output_attentions):
            raise ValueError(
                "output_attentions is set, but models of Clockhands do not return attention weights from generate; "
                "leave it out, and use clockhands.attention.record to see them"
            )
        if self.model.output_stack.cache_limit and generation_config is None:
            options.setdefault("use_cache", False)
        return super().generate(inputs, generation_config, *arguments, **options)  # type: ignore[misc, unused-ignore]

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *arguments: Any, **options: Any
    ) -> Any:
        """Make the KV cache as transformers does, whose layers with windows then keep only the keys in their windows.

        They keep all keys if the call passes or names a cache, in assisted generation, which takes tokens back, and if
        keys may be missing within a window (``may_drop_keys``).
        """
        passed = model_kwargs.get(CACHE_NAME) is not None
        result = super()._prepare_cache_for_generation(generation_config, model_kwargs, *arguments, **options)  # type: ignore[misc]
        cache = model_kwargs.get(CACHE_NAME)
        # transformers passes the mode of generation by place or by name.
        assisted = generation_config.is_assistant or GenerationMode.ASSISTED_GENERATION in (
            *arguments,
            *options.values(),
        )
        prefix = "decoder_" if self.config.is_encoder_decoder else ""
        if cache is None or passed or assisted or generation_config.cache_implementation is not None:
            return result
        if may_drop_keys(model_kwargs, prefix):
            keep_windows(getattr(cache, "self_attention_cache", cache), self.model.get_stack("decoder"))
        return result


def check_padding_mask(mask_BT: PaddingMask) -> PaddingMask:
    """Return a padding mask [B, T] as booleans, or None. Raises UsageError for a mask of any other shape."""
    if mask_BT is None:
        return None
    if mask_BT.dim() != 2:
        raise UsageError(
            f"a padding mask is [batch, length]; this one has the shape {tuple(mask_BT.shape)}; "
            f"pass the padding mask alone, the model adds causality"
        )
    return mask_BT.bool()


def to_state_tuple(layer_states: list[torch.Tensor] | None) -> tuple[torch.Tensor, ...] | None:
    """Return the states of all layers as the outputs of transformers hold them; None if they were not collected."""
    return None if layer_states is None else tuple(layer_states)


class WindowLayer(DynamicSlidingWindowLayer):
    """The keys and values of the last tokens, as many as later queries can attend to (``kv_cache.find_window``).

    The tokens that it drops have to be outside the window of every later query. For that, ``keep_windows`` looks at the
    schemes, the transform and the axes of positions, ``may_drop_keys`` looks at the first mask and positions, and
    ``kv_cache.refuse_padding_after_tokens`` looks at every later mask. Caches with sliding windows that somebody else
    made are refused as soon as they have dropped a key.
    """

    is_window_layer = True


def keep_windows(cache: Cache, stack: Stack) -> None:
    """Let a cache that is still empty keep only the windows of those layers of a stack that have one.

    The caller has asked ``may_drop_keys`` before. The cache stays as it is if a transform moves positions or a position
    has several coordinates: then a window of positions may reach tokens that are further back in the row.
    """
    windows = [find_window(stack.schemes.get_scheme(layer)) for layer in range(len(stack.blocks))]
    if stack.transform is None and stack.schemes.axes in (None, 1) and any(window is not None for window in windows):
        # A layer of transformers keeps one token less than the window that it is given, because that window counts the
        # query itself. So with ``window`` + 1 it keeps ``window`` tokens. Here it keeps at least one.
        cache.layers = [DynamicLayer() if window is None else WindowLayer(max(window, 1) + 1) for window in windows]


def may_drop_keys(inputs: Mapping[str, Any], prefix: str = "") -> bool:
    """Return whether a window of n positions never reaches further back than the last n places of a row.

    So it is if no padding follows a token, and if positions, where they are given, grow by at least 1 from token to
    token. ``inputs``: the inputs of a model by name; those that are read are ``attention_mask`` and ``position_ids``,
    [B, T] each, if present, with ``prefix`` before their names.
    """
    mask_BT, pos_BT = inputs.get(f"{prefix}attention_mask"), inputs.get(f"{prefix}position_ids")
    mask_BT = None if mask_BT is None else mask_BT.bool()
    if mask_BT is not None and mask_BT.dim() != 2:
        return False
    if mask_BT is not None and has_padding_after_tokens(mask_BT):
        return False
    if pos_BT is None or pos_BT.dim() != 2:
        return pos_BT is None
    is_growing = pos_BT[:, 1:] - pos_BT[:, :-1] >= 1
    if mask_BT is not None and mask_BT.shape == pos_BT.shape:
        is_growing = is_growing | ~mask_BT[:, :-1]  # padding has no position
    return bool(torch.all(is_growing))
