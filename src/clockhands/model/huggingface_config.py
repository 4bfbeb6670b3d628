"""The configuration as transformers saves and loads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from transformers import AutoConfig, PreTrainedConfig

from clockhands.errors import ConfigError, describe_unknown
from clockhands.model.config import TransformerConfig, keep_config, read_config
from clockhands.model.loss import LabelSmoothing, SmoothingMode

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

    @property
    def training_smoothing(self) -> LabelSmoothing:
        """How labels are smoothed in the training loss."""
        return LabelSmoothing(self.label_smoothing, cast(SmoothingMode, self.smoothing), self.pad_token_id)

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
