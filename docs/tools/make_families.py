"""Write ``families.json``: what the code of each architecture of transformers does with its configuration.

    python docs/tools/make_families.py > src/clockhands/explanation/families.json

What a configuration leaves out is filled in by transformers' own class. What is left are facts that stand in the code
of the models alone; each is searched for there, for the installed transformers. A test compares the file with this.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from types import ModuleType
from typing import Any

OTHER_INPUTS = re.compile("Vision(?!Text)|Audio|Axial|Compressor|SaProt|ViT")
OTHER_CLASSES = re.compile(r"^(class|def) \w*([Vv]ision|[Aa]udio).*?(?=\n(class|def|@)|\Z)", re.DOTALL | re.MULTILINE)
SOON = r"[^\n]*\n(\s+[^\n]*\n){0,2}?[^\n]*apply_rotary"
ROTATING = (
    ("no_rope_layers", r"self\.use_rope = config\.no_rope_layers\[layer_idx\]"),
    ("layer_rope_theta", r"self\.config\.layer_rope_theta\[i\]"),
    ("sliding or dense", r"if self\.sliding_window is not None or self\.force_rope:"),
    ("sliding", r"if (self\.is_local_attention|self\.sliding_window is not None):" + SOON),
    ("sliding if any", r"if self\.sliding_window is None or self\.is_sliding:" + SOON),
)  # fmt: skip
"""How the code says which layers rotate, by the name of the rule (``huggingface._rotates``)."""
EVERYWHERE = re.compile(
    r"create_causal_mask\s+if (self\.)?config\.(sliding_window|local_attention_window_len) is None\s+else create_slid"
    r"|causal_mask = create_sliding_window_causal_mask\(|attention_mask = create_bidirectional_sliding_window_mask\("
)
"""How the code says that all layers have the window of ``sliding_window``; Moshi's does so for its cache alone."""


def main() -> int:
    """Print the facts of every architecture that rotates as JSON."""
    from transformers import CONFIG_MAPPING

    families = {name: facts for name in sorted(CONFIG_MAPPING) if (facts := describe(CONFIG_MAPPING[name]))}
    json.dump(families, sys.stdout, indent=1, sort_keys=True)
    print()
    return 0


def describe(config_class: Any) -> dict[str, Any] | None:
    """Return the facts of one architecture; None if its code has no rotary module for text."""
    try:
        code = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    except Exception:  # models without code of their own, or with packages that are not installed
        return None
    rotary = find_rotary_class(code, config_class)
    if rotary is None:
        return None
    source, own = OTHER_CLASSES.sub("", inspect.getsource(code)), inspect.getsource(rotary)
    if "axial" in own or not has_base(config_class):
        return None
    facts: dict[str, Any] = {}
    facts["pairing"], direction = find_pairing(code, source)
    facts |= {"direction": direction} if direction != 1 else {}
    facts |= {"pairing_key": "rope_interleave"} if "config.rope_interleave" in source else {}
    facts |= {"by_kind": True} if "rope_parameters[layer_type]" in own else {}
    facts |= {"by_layer": True} if "per_layer_config[layer_type]" in own else {}
    if share := re.search(r'\.get\("partial_rotary_factor", ([\d.]+)\)', own):
        facts["share"] = float(share[1])
    facts |= {"plain": True} if "raise ValueError" in own else {}
    facts |= {"alpha": True} if "ntk_alpha" in own else {}
    facts |= {"logit_factor": True} if "mscale_all_dim" in source else {}
    alone = "self.sliding_window = config.sliding_window\n" in source and "layer_types" not in source
    if EVERYWHERE.search(source) or alone:
        facts["window"] = "everywhere"
    elif re.search("create_(bidirectional_)?sliding_window|sliding_window_overlay|reference_sliding", source):
        facts["window"] = "by kind"
    facts |= {"two_sided": True} if re.search(r"config\S*\.sliding_window \+ 1\b", source) else {}
    if rule := next((name for name, pattern in ROTATING if re.search(pattern, source)), None):
        facts["rotates"] = rule
    return facts


def has_base(config_class: Any) -> bool:
    """Whether a configuration is one of text, and says how to rotate."""
    try:
        config = config_class()
    except Exception:  # classes that need arguments
        return False
    table = getattr(config, "rope_parameters", None)
    axial = table and table.get("rope_type") == "axial"
    if axial or re.search("vision|audio|dit$|^eomt|loftr", config_class.model_type):
        return config_class.model_type.endswith("vision_text")
    return table is not None or hasattr(config, "rope_theta")


def find_rotary_class(code: ModuleType, config_class: Any) -> Any:
    """Return the rotary module of text: the one whose name begins most as the configuration's does."""
    own = config_class.__name__.removesuffix("Config")
    found = [
        kind
        for name, kind in vars(code).items()
        if inspect.isclass(kind) and name.endswith("RotaryEmbedding") and not OTHER_INPUTS.search(name)
    ]

    def common(kind: Any) -> int:
        same = [a == b for a, b in zip(kind.__name__, own, strict=False)]
        return same.index(False) if False in same else len(same)

    return max(found, key=common, default=None)


def find_pairing(code: ModuleType, source: str) -> tuple[str, int]:
    """Return which channels are paired and in which sense they rotate, from what ``rotate_half`` makes of 1 to 8."""
    import torch

    if "rotate_half" not in vars(code) or "_interleave(q" in source:
        chunked = "torch.chunk(x, 2, dim=-1)" in source
        return ("halves", 1) if chunked and "view_as_complex" not in source else ("interleaved", 1)
    rotated = code.rotate_half(torch.arange(1.0, 9.0)[None])[0].tolist()
    known = {-5.0: ("halves", 1), 5.0: ("halves", -1), -2.0: ("interleaved", 1), 2.0: ("interleaved", -1)}
    return known[rotated[0]]


if __name__ == "__main__":
    raise SystemExit(main())
