"""The configuration as transformers saves and loads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from transformers import AutoConfig, PreTrainedConfig

from clockhands.errors import ConfigError, describe_unknown
from clockhands.model.config import TransformerConfig
from clockhands.model.loss import LabelSmoothing, Smoothing
from clockhands.model.validated import remember, validate

__all__ = ["IDS", "ClockhandsConfig", "id_faults", "loss_faults"]

IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


class ClockhandsConfig(PreTrainedConfig):
    """A Clockhands Transformer for transformers: ``config.json`` with the whole architecture under ``transformer``.

    Args:
        transformer: a ``TransformerConfig``, or its table (``to_dict()``), validated here; missing keys take the
            paper's values.
        label_smoothing, smoothing: the training loss (see ``loss.LabelSmoothing``); evaluation never smooths.
        pad_token_id, bos_token_id, eos_token_id, decoder_start_token_id: as everywhere in transformers; ids of the
            vocabulary that is written.
        use_cache: whether ``generate``, and a forward pass outside training without labels, use a KV cache; by default
            only where cached keys cannot become stale.
        tokenizer_fingerprint: of the tokenizers that the model was trained with (``Tokenizers.fingerprint``); None:
            not known, and not compared.
    """

    model_type = "clockhands"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 - transformers' own form

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
        architecture = transformer if isinstance(transformer, TransformerConfig) else validate(transformer or {})
        self.transformer = architecture.to_dict()
        remember(architecture, self.transformer)
        self.label_smoothing, self.smoothing, self.use_cache = label_smoothing, smoothing, use_cache
        self.pad_token_id, self.bos_token_id, self.eos_token_id = pad_token_id, bos_token_id, eos_token_id
        self.decoder_start_token_id, self.tokenizer_fingerprint = decoder_start_token_id, tokenizer_fingerprint
        wrong = loss_faults(label_smoothing, smoothing, pad_token_id)
        if wrong:
            raise ConfigError(wrong, "the training loss")
        wrong = id_faults({name: getattr(self, name) for name in IDS}, architecture.vocab_size)
        if wrong:
            raise ConfigError(wrong, "the configuration")
        kwargs["is_encoder_decoder"] = architecture.kind == "encoder-decoder"
        kwargs["tie_word_embeddings"] = architecture.tying != "none"
        super().__init__(**kwargs)

    @property
    def core(self) -> TransformerConfig:
        """The architecture as plain data."""
        return validate(self.transformer)

    @property
    def training_labels(self) -> LabelSmoothing:
        """How labels are smoothed in the training loss."""
        return LabelSmoothing(self.label_smoothing, cast(Smoothing, self.smoothing), self.pad_token_id)

    @property
    def vocab_size(self) -> int:
        """The number of tokens that the model writes."""
        return self.core.vocab_size

    @property
    def hidden_size(self) -> int:
        """The width of the model, d_model."""
        return self.core.d_model

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers of the decoder, or of the encoder where there is no decoder."""
        return self.core.layers("encoder" if self.core.kind == "encoder" else "decoder")

    @property
    def num_attention_heads(self) -> int:
        """The number of heads of queries."""
        return self.core.num_heads

    @property
    def head_dim(self) -> int:
        """The width of one head, d_head."""
        return self.core.d_head


def loss_faults(rate: Any, smoothing: Any, pad: Any) -> list[str]:
    """Find what is wrong with the training loss, one sentence each."""
    wrong = []
    if not isinstance(rate, (int, float)) or not isinstance(smoothing, str):
        return [f"label_smoothing is {rate!r} and smoothing {smoothing!r}; they must be a number and a name"]
    if not 0 <= rate < 1:
        wrong.append(f"label_smoothing is {rate}; it must be at least 0 and below 1")
    if smoothing not in get_args(Smoothing):
        wrong.append(describe_unknown("smoothing", smoothing, get_args(Smoothing)))
    if smoothing == "others-but-pad" and pad is None:
        wrong.append("smoothing is 'others-but-pad', which needs pad_token_id")
    return wrong


def id_faults(ids: Mapping[str, Any], vocabulary: int) -> list[str]:
    """Find ids of special tokens that cannot be, one sentence each; None stands for a token that there is not."""
    return [
        f"{name} is {number!r}; it must be the id of a token, from 0 to {vocabulary - 1:,}"
        for name, value in ids.items()
        for number in (value if isinstance(value, list) else [value])
        if number is not None and (not isinstance(number, int) or not 0 <= number < vocabulary)
    ]


AutoConfig.register(ClockhandsConfig.model_type, ClockhandsConfig, exist_ok=True)
