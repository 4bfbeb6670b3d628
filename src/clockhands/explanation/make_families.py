"""Write ``families.json``: what each architecture of transformers means where a configuration says nothing.

    python -m clockhands.explanation.make_families > src/clockhands/explanation/families.json

The facts are read from configuration classes and from the code of the models, for the installed transformers; a test
compares them with the modules that transformers builds.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings", "sliding_window")
ONLY_SLIDING = re.compile(
    r"if (self\.is_local_attention|self\.sliding_window is not None|self\.sliding_window is None or self\.is_sliding)"
    r"[^\n]*:[^\n]*\n(\s+[^\n]*\n){0,2}?[^\n]*apply_rotary"
)
RENAMED = (*SIZES, "head_dim", "layer_types")
LAYERS_TRIED = 96


def main() -> int:
    """Print the facts of every text architecture as JSON."""
    families = {}
    for name, config_class in sorted(list_text_configs()):
        facts = describe(name, config_class)
        if facts:
            families[name] = facts
    json.dump(families, sys.stdout, indent=1, sort_keys=True)
    print()
    return 0


def list_text_configs() -> Iterator[tuple[str, type]]:
    """Yield the configuration classes of all models with a head for text, those inside multimodal ones too."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    heads = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )
    seen = set()
    for name in sorted({name for head in heads for name in head}):
        if name not in CONFIG_MAPPING:
            continue
        config_class = CONFIG_MAPPING[name]
        inside = config_class.sub_configs.get("text_config")
        for candidate in (config_class, inside):
            known = getattr(candidate, "model_type", "")
            if inspect.isclass(candidate) and known in CONFIG_MAPPING and known not in seen:
                seen.add(known)
                yield known, CONFIG_MAPPING[known]


def describe(name: str, config_class: Any) -> dict[str, Any] | None:
    """Return the facts of one architecture; None if it rotates nothing or cannot be made without arguments."""
    try:
        config = config_class()
        code = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    except Exception:  # classes that need arguments, models without code of their own
        return None
    source = inspect.getsource(code)
    rope = getattr(config, "rope_parameters", None)
    if "text_config" in config_class.sub_configs or (rope is None and "apply_rotary" not in source):
        return None
    facts: dict[str, Any] = {key: value for key in SIZES if isinstance(value := _read(config, key), int) and value}
    facts |= {"rope": rope} if rope else {}
    base = config_class.default_theta
    facts["base"] = base
    if isinstance(head_dim := _read(config, "head_dim"), int) and not _is_derived(config_class, config):
        facts["head_dim"] = head_dim
    for key in ("qk_rope_head_dim", "global_head_dim", "rotary_dim"):
        if isinstance(value := _read(config, key), int):
            facts[key] = value
    if names := {
        ours: theirs
        for ours, theirs in config_class.attribute_map.items()
        if ours in (*SIZES, "head_dim", "layer_types")
    }:
        facts["names"] = names
    facts["pairing"], direction = find_pairing(code, source)
    facts |= {"direction": direction} if direction != 1 else {}
    facts |= {"pairing_key": "rope_interleave"} if "config.rope_interleave" in source else {}
    facts |= {"share_in_default": True} if reads_share(code) else {}
    facts |= {"logit_factor": True} if "mscale_all_dim" in source else {}
    facts |= layer_facts(config, config_class, source)
    return facts


def _read(config: Any, key: str) -> Any:
    """Return an attribute; None where it is missing or differs from layer to layer."""
    try:
        return getattr(config, key, None)
    except Exception:
        return None


def _is_derived(config_class: Any, config: Any) -> bool:
    """Whether the width of a head follows from the width of the model, so that it is no default of its own."""
    try:
        wider = config_class(hidden_size=2 * config.hidden_size)
    except Exception:  # a class that checks one size against another
        return False
    return bool(_read(wider, "head_dim") != config.head_dim)


def find_pairing(code: ModuleType, source: str) -> tuple[str, int]:
    """Return which channels are paired and in which sense they rotate, from what ``rotate_half`` makes of 1 to 8."""
    import torch

    text_only = re.sub(r"(class|def) \w*[Vv]ision.*?(?=\n(class|def|@)|\Z)", "", source, flags=re.DOTALL)
    if "rotate_half" not in vars(code) or "_interleave(q" in text_only:
        chunked = "torch.chunk(x, 2, dim=-1)" in source
        return ("halves", 1) if chunked and "view_as_complex" not in text_only else ("interleaved", 1)
    rotated = code.rotate_half(torch.arange(1.0, 9.0)[None])[0].tolist()
    known = {-5.0: ("halves", 1), 5.0: ("halves", -1), -2.0: ("interleaved", 1), 2.0: ("interleaved", -1)}
    return known[rotated[0]]


def reads_share(code: ModuleType) -> bool:
    """Whether the plain rotation of an architecture rotates a share of the channels."""
    for name, module in vars(code).items():
        if (
            inspect.isclass(module)
            and name.endswith("RotaryEmbedding")
            and hasattr(module, "compute_default_rope_parameters")
        ):
            return "partial_rotary_factor" in inspect.getsource(module.compute_default_rope_parameters)
    return False


def layer_facts(config: Any, config_class: Any, source: str) -> dict[str, Any]:
    """Return the kinds of the layers where a file does not list them, and which of them rotate."""
    kinds = _read(config, "layer_types")
    facts: dict[str, Any] = {}
    if isinstance(kinds, list) and len(set(kinds)) > 1:
        facts["layer_types"] = kinds
        try:
            many = list(config_class(num_hidden_layers=LAYERS_TRIED).layer_types)
        except Exception:  # a class whose lists have to be as long as its layers
            many = []
        period = next((p for p in range(1, 25) if many == (many[:p] * LAYERS_TRIED)[:LAYERS_TRIED]), None)
        if many and period and kinds == (many[:period] * LAYERS_TRIED)[: len(kinds)]:
            facts["layer_types"] = many[:period]
    elif isinstance(kinds, list) and kinds:
        facts["layer_types"] = kinds[:1]
    if _read(config, "no_rope_layers") is not None:
        facts["rotates"] = "no_rope_layers"
    elif ONLY_SLIDING.search(source):
        facts["rotates"] = "sliding_attention"
    return facts


if __name__ == "__main__":
    raise SystemExit(main())
