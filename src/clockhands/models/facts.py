"""What is known of each architecture: how position enters, how long its texts may be, what its forward pass takes.

Attention is read without this knowledge, and the tables at the input are found by editing them. An architecture that is
missing here is opened all the same; its mechanisms are then guessed from the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from clockhands.findings import join_words
from clockhands.shapes import Tensor

MECHANISM_CLAUSES = {
    "learned": "a learned vector per position is added to the token embedding",
    "sinusoid": "a fixed sinusoid per position is added to the token embedding",
    "rotary": "queries and keys are rotated by an angle that grows with their position",
    "alibi": "a penalty that grows linearly with distance is added to the attention logits",
    "buckets": "a learned bias per bucket of distances is added to the attention logits",
    "disentangled": "attention adds content-to-position and position-to-content terms over relative positions",
    "transformer-xl": "attention adds terms of a sinusoid of the distance, after Transformer-XL",
    "attention": "position enters the attention itself",
    "none": "nothing tells the model position, except a causal mask where it has one",
}
"""What each mechanism does, as a clause, by the name of the mechanism."""

CONTENTS = {
    "pixel_values": "images", "pixel_values_videos": "videos", "input_features": "sound", "input_values": "sound",
    "audio_mel": "sound", "past_values": "time series",
}  # fmt: skip
"""What a model reads, by the name of its main input."""


@dataclass(frozen=True)
class Family:
    """How position enters one architecture: ``mechanisms`` is a function of the configuration.

    ``interleaved``: RoPE rotates neighbouring channels (0, 1), not those half a head apart.
    """

    mechanisms: Callable[[Any], tuple[str, ...]]
    interleaved: bool = False


def _always(*names: str) -> Family:
    """Make the family of an architecture whose mechanisms do not depend on its configuration."""
    return Family(lambda config: names)


def _read_deberta(config: Any) -> tuple[str, ...]:
    """Return the mechanisms of DeBERTa: a table at the input, relative terms in the attention, both, or none."""
    relative = ("disentangled",) if config.relative_attention else ()
    return (("learned",) if config.position_biased_input else ()) + relative or ("none",)


FAMILIES: dict[str, Family] = {
    **dict.fromkeys(
        (
            "bert", "electra", "albert", "roberta", "xlm-roberta", "camembert", "gpt2", "gpt_neo", "opt", "bart",
        ),
        _always("learned"),
    ),
    "mpnet": _always("learned", "buckets"),
    "distilbert": Family(lambda config: ("sinusoid" if config.sinusoidal_pos_embds else "learned",)),
    **dict.fromkeys(("deberta", "deberta-v2"), Family(_read_deberta)),
    "falcon": Family(lambda config: ("alibi" if config.alibi else "rotary",)),  # ALiBi if trained on RefinedWeb alone
    **dict.fromkeys(("bloom", "mpt"), _always("alibi")),
    "marian": _always("sinusoid"),
    **dict.fromkeys(("t5", "mt5", "umt5", "switch_transformers"), _always("buckets")),
    "xlnet": _always("transformer-xl"),
    **dict.fromkeys(
        (
            "modernbert", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi",
            "phi3", "smollm3", "gpt_oss", "olmo", "olmo2", "starcoder2", "stablelm", "granite", "mixtral", "qwen3_moe",
        ),
        _always("rotary"),
    ),
    **dict.fromkeys(("roformer", "gptj", "cohere", "cohere2"), Family(lambda config: ("rotary",), interleaved=True)),
}  # fmt: skip
"""What is recorded of each architecture, by the ``model_type`` of its configuration."""


def guess_mechanisms(model: nn.Module, rows_ND: Tensor | None) -> tuple[str, ...]:
    """Return the mechanisms that a model shows: a table of position vectors, and buffers of RoPE's frequencies."""
    mechanisms = []
    if rows_ND is not None:
        mechanisms.append("sinusoid" if is_sinusoid(rows_ND) else "learned")
    if any(name.endswith("inv_freq") for name, _ in model.named_buffers()):
        mechanisms.append("rotary")
    return tuple(mechanisms)


def is_sinusoid(rows_ND: Tensor) -> bool:
    """Whether products of the rows of a table depend on their distance alone, as those of sine and cosine do."""
    rows = rows_ND[:64].double()
    gram = rows @ rows.T
    size = float(gram.diagonal().mean())
    spread = max(float((gram.diagonal(k) - gram.diagonal(k).mean()).abs().max()) for k in range(len(gram)))
    varies = float(rows.var(0).sum()) > 1e-6 * size
    return varies and spread < 1e-3 * size


def name_mechanisms(hooks: Collection[str], learned: bool) -> tuple[str, ...]:
    """Return the names in ``MECHANISM_CLAUSES`` of what schemes with these hooks do; ``learned``: at the input.

    Temperature, and SSMax that counts by position, are "rotary" too, for they scale queries in the hook ``rotate``.
    """
    names = ["learned" if learned else "sinusoid"] if "encode" in hooks else []
    if "rotate" in hooks:
        names.append("rotary")
    if not {"bias", "logits", "values", "weigh", "locate"}.isdisjoint(hooks):
        names.append("attention")
    return tuple(names) or ("none",)


def add_installed(own: tuple[str, ...], layers: Mapping[int, Any]) -> tuple[tuple[str, ...], str]:
    """Return the mechanisms of a model with what is installed in its layers, and a sentence on that; empty without.

    ``own``: those of the model as it came; ``layers``: what ``attention.list_installed`` returns.
    """
    if not layers:
        return own, ""
    rotates, hooks, places = "rotary" in own, set[str](), dict[str, list[int]]()
    for layer, entry in layers.items():
        if entry is not None:
            beside = "beside" if entry.rotary == "keep" else "in place of"
            hooks |= entry.scheme.active_hooks()
            places.setdefault(f"{entry.scheme!r}{f' {beside} the rotation' * rotates}", []).append(layer)
    if all(entry is not None and entry.rotary == "off" for entry in layers.values()):
        own = tuple(name for name in own if name != "rotary")
    named = dict.fromkeys((*own, *name_mechanisms(hooks, learned=False)))
    texts = []
    for what, where in places.items():
        numbers = join_words(str(layer + 1) for layer in where)  # from 1, as everywhere on a page
        texts.append(f"{what} in {'every layer' if len(where) == len(layers) else f'layer {numbers}'}")
    mechanisms = tuple(name for name in named if name != "none") or ("none",)
    return mechanisms, f" Installed: {'; '.join(texts)}."


def describe_mechanisms(mechanisms: tuple[str, ...]) -> str:
    """Return one sentence on how position enters; without mechanisms it says that they are not known."""
    if not mechanisms:
        return "How position enters is not known for this architecture; what reaches the attention is measured."
    text = " and ".join(MECHANISM_CLAUSES[name] for name in mechanisms)
    return text[0].upper() + text[1:] + "."


def list_arguments(model: Any) -> frozenset[str]:
    """Return the names of the arguments that a model's forward pass takes, itself or handed on to its base model."""
    parameters = inspect.signature(model.forward).parameters
    base = getattr(model, getattr(model, "base_model_prefix", "") or "", None)
    if base is None or not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return frozenset(parameters)
    return frozenset({*parameters, *inspect.signature(base.forward).parameters})


def find_claimed_length(config: Any, *, source: bool = False) -> int | None:
    """Return how many tokens a configuration says that a model can hold; of its side that reads a ``source``, if asked.

    Parts of a configuration (its text part, or the part of a side) are looked at where the whole names no length.
    """
    side = ("max_source_positions", "max_encoder_position_embeddings")
    side = side if source else ("max_target_positions", "max_decoder_position_embeddings")
    named = find_count(config, "max_position_embeddings", "n_positions", *side, "max_seq_len")
    part = getattr(config, "encoder" if source else "decoder", None) or getattr(config, "text_config", None)
    return named or (None if part is None else find_claimed_length(part, source=source))


def find_count(config: Any, *names: str) -> int | None:
    """Return the first setting of a configuration or module, under these names, that is a number above 0."""
    values = (getattr(config, name, None) for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def list_special_ids(*configs: Any) -> set[int]:
    """List the token ids that configurations give a meaning of their own, which is no text."""
    ids: set[int] = set()
    for config in configs:
        for name, value in config.to_dict().items() if hasattr(config, "to_dict") else ():
            if name.endswith(("_token_id", "_token_index", "_token_idx", "pad_idx")):
                ids |= {number for number in (value if isinstance(value, list) else [value]) if isinstance(number, int)}
    return ids
