"""What is known of each architecture, as data: how position enters, and where the tables stand.

Attention itself needs nothing from here: it is read generically. Paths start at the base model (of an
encoder-decoder, at the stack that is looked at). A class that is missing here is opened all the same; only the measures
of the input tables are then left out, and say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

SENTENCES = {
    "learned": "a learned vector per position is added to the token embedding",
    "sinusoid": "a fixed sinusoid per position is added to the token embedding",
    "rotary": "queries and keys are rotated by an angle that grows with their position",
    "alibi": "a penalty that grows linearly with distance is added to the attention logits",
    "buckets": "a learned bias per bucket of distances is added to the attention logits",
    "disentangled": "attention adds content-to-position and position-to-content terms over relative positions",
    "transformer-xl": "attention adds terms of a sinusoid of the distance, after Transformer-XL",
    "none": "nothing tells it position, except what a causal mask lets it infer",
}
"""Every mechanism that can be named, as one clause."""


@dataclass(frozen=True)
class Family:
    """Where one architecture keeps what.

    ``mechanisms`` is a function of the configuration. ``positions`` names the table, whose row for the first token is
    ``offset``; ``scale`` names a number that multiplies the token rows; ``norm`` is what the sum goes through;
    ``interleaved`` says that a rotation turns neighbouring dimensions (0, 1), not those half a head apart.
    """

    mechanisms: Callable[[Any], tuple[str, ...]]
    words: str
    positions: str = ""
    offset: int = 0
    scale: str = ""
    segments: str = ""
    norm: str = ""
    interleaved: bool = False


def _always(*names: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda config: names


def _bert(offset: int = 0) -> Family:
    return Family(
        _always("learned"),
        words="embeddings.word_embeddings",
        positions="embeddings.position_embeddings",
        offset=offset,
        segments="embeddings.token_type_embeddings",
        norm="embeddings.LayerNorm",
    )


def _mpnet() -> Family:
    return Family(
        _always("learned", "buckets"),
        words="embeddings.word_embeddings",
        positions="embeddings.position_embeddings",
        offset=2,
        norm="embeddings.LayerNorm",
    )


def _distilbert() -> Family:
    return Family(
        lambda config: ("sinusoid",) if config.sinusoidal_pos_embds else ("learned",),
        words="embeddings.word_embeddings",
        positions="embeddings.position_embeddings",
        norm="embeddings.LayerNorm",
    )


def _deberta(config: Any) -> tuple[str, ...]:
    relative = ("disentangled",) if config.relative_attention else ()
    return (("learned",) if config.position_biased_input else ()) + relative or ("none",)


def _falcon(config: Any) -> tuple[str, ...]:
    return ("alibi",) if config.alibi else ("rotary",)


def _rotary(words: str = "embed_tokens", interleaved: bool = False) -> Family:
    return Family(_always("rotary"), words=words, interleaved=interleaved)


FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("bert", "electra", "albert"), _bert()),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _bert(offset=2)),
    "distilbert": _distilbert(),
    "mpnet": _mpnet(),
    **dict.fromkeys(
        ("deberta", "deberta-v2"),
        Family(
            _deberta,
            words="embeddings.word_embeddings",
            positions="embeddings.position_embeddings",
            norm="embeddings.LayerNorm",
        ),
    ),
    "modernbert": _rotary("embeddings.tok_embeddings"),
    "roformer": _rotary("embeddings.word_embeddings", interleaved=True),
    **dict.fromkeys(("gpt2", "gpt_neo"), Family(_always("learned"), words="wte", positions="wpe")),
    "gptj": _rotary("wte", interleaved=True),
    "gpt_neox": _rotary("embed_in"),
    "opt": Family(
        _always("learned"), words="decoder.embed_tokens", positions="decoder.embed_positions", offset=2
    ),
    "bloom": Family(_always("alibi"), words="word_embeddings"),
    "mpt": Family(_always("alibi"), words="wte"),
    "falcon": Family(_falcon, words="word_embeddings"),
    **dict.fromkeys(
        (
            "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3",
            "smollm3", "gpt_oss", "olmo", "olmo2", "starcoder2", "stablelm", "granite", "mixtral", "qwen3_moe",
        ),
        _rotary(),
    ),
    **dict.fromkeys(("cohere", "cohere2"), _rotary(interleaved=True)),
    "bart": Family(
        _always("learned"),
        words="embed_tokens",
        positions="embed_positions",
        offset=2,
        scale="embed_tokens.embed_scale",
        norm="layernorm_embedding",
    ),
    "marian": Family(_always("sinusoid"), words="embed_tokens", positions="embed_positions", scale="embed_scale"),
    **dict.fromkeys(("t5", "mt5", "umt5"), Family(_always("buckets"), words="embed_tokens")),
    "xlnet": Family(_always("transformer-xl"), words="word_embedding"),
}  # fmt: skip
"""By ``model_type`` of the configuration."""


def seen(model: nn.Module) -> tuple[str, ...]:
    """What an architecture that is not listed shows of its mechanism: frequencies that are kept are for rotating."""
    return ("rotary",) if any(name.endswith("inv_freq") for name, _ in model.named_buffers()) else ()


def sentence(mechanisms: tuple[str, ...]) -> str:
    """How position enters, as one sentence. Unknown mechanisms are said to be unknown."""
    if not mechanisms:
        return "How position enters is not known for this architecture; what reaches the attention is measured."
    text = " and ".join(SENTENCES[name] for name in mechanisms)
    return text[0].upper() + text[1:] + "."
