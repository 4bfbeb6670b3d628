"""Fills in a ``config.json`` as transformers does: by its own configuration class, which knows the defaults, older keys
and rules of each architecture. What stands in the code of the models alone is in ``families.json``."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.errors import CheckpointError, cut_long_line, show_value
from clockhands.explanation.numbers import check_count, check_layers
from clockhands.explanation.table import read_facts
from clockhands.pretrained.configuration import is_known, walk_settings
from clockhands.progress import quiet

INSIDE = (
    *("text_config", "llm_config", "language_config", "thinker_config", "vlm_config"),
    *("decoder", "decoder_config", "global_config"),
)
"""Keys under which a model of several kinds of input keeps the part that reads text."""
NOT_POSITION = re.compile(
    "^(chunk_size_feed_forward|num_local_experts|moe_layer_interval|.*_window_layers_enum|mamba_.*|position_ids|"
    "is_composition|"
    "(qk_nope|v|value|index|linear_key|linear_value)_head_dim)$"
)
ALIASES = {
    "hidden_size": ("n_embd", "d_model", "dim"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers", "num_transformer_layers"),
    "head_dim": ("kv_channels", "attention_head_dim", "hidden_size_per_head"),
    "max_position_embeddings": ("n_positions", "max_sequence_length", "model_max_length", "seq_length"),
    "rope_theta": (
        "rotary_emb_base",
        "rotary_embedding_base",
        "rope_embedding_base",
        "rope_base",
        "rope_freq_constant",
    ),
    "partial_rotary_factor": ("rotary_pct", "rope_pct", "rotary_percentage"),
}
"""Other names of keys of Llama, for files of architectures that transformers does not know."""
SAME_CODE = {
    "hunyuan": "hunyuan_v1_moe", "RefinedWeb": "falcon", "RefinedWebModel": "falcon", "kimi_k2": "deepseek_v3",
    "ernie4_5_moe_vl": "ernie4_5_vl_moe_text",
}  # fmt: skip
"""Architectures that transformers does not know, but whose code is that of another one."""
ROTATE = ("arctic", "baichuan", "chatglm", "codeshell", "deepseek", "grok-1", "internlm", "minicpm", "orion", "xverse")
"""Architectures that transformers does not know, and that rotate by 10,000 where their files name no rotation."""
UNKNOWN: dict[str, Any] = {"pairing": "halves", "share": 1.0, "window": "by kind"}
"""What is taken for granted of an architecture that transformers does not know: that it rotates as Llama."""
IN_ATTENTION = ("gptj", "codegen", "roformer")
"""Architectures that rotate in their attention, neighbouring channels, by a base that no key changes."""


def load_families() -> dict[str, dict[str, Any]]:
    """Return what the code of each architecture does; ``docs/tools/make_families.py`` writes it.

    ``pairing``, ``direction``: which channels are paired, and the sense; ``pairing_key``: the key that changes it.
    ``by_kind``: each kind of layer has a table of its own in ``rope_parameters``; ``by_layer``: and a configuration.
    ``share``: the share of the channels that plain rotation turns where the table names none; without it, plain
    rotation turns all whatever the table says. ``plain``: no rule is possible. ``alpha``: HunYuan's dynamic rule.
    ``logit_factor``: logits get DeepSeek's factor. ``window``: everywhere, or by kind, where layers are called sliding;
    ``two_sided``: it reaches to both sides. ``rotates``: the rule by which layers rotate (``layers.rotates``).
    """
    return read_facts("families.json")


@dataclass(frozen=True)
class Filled:
    """The part of a configuration that reads text.

    ``raw``: as the file has it, below the keys ``prefix``. ``config``: as transformers fills it in; ``whole``: with the
    parts for other inputs. ``facts``: what the code of its architecture does (`load_families`); ``known``: whether
    transformers knows it.
    """

    raw: Mapping[str, Any]
    config: Any
    whole: Any
    facts: Mapping[str, Any]
    known: bool
    source: str
    program: str
    prefix: str

    @property
    def model(self) -> str:
        """The architecture, as the file names it."""
        return str(self.raw.get("model_type") or (self.config.model_type if self.known else ""))

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value of the filled-in configuration; ``default`` where it has none, or one for each layer."""
        try:
            return getattr(self.config, key, default)
        except Exception:  # of a configuration that differs from layer to layer
            return default

    def of_kind(self, kind: str | None) -> Any:
        """Return the configuration of one kind of layer, where kinds have their own; otherwise that of all."""
        try:
            return self.config.per_layer_config[kind]
        except Exception:
            return self.config

    def count(self, key: str, least: int = 1) -> int | None:
        """Return a whole number of the configuration, None where there is none. Raises CheckpointError for others."""
        value = self.get(key)
        if value is None or (value == -1 and key not in self.raw):  # a class without a bound says -1, as XLNet's does
            return None
        return check_count(value, self.find(value, key), self.source, least)

    def find(self, value: Any, pattern: str, kind: str | None = None) -> str:
        """Return the key of a matching name that holds a value in the file, tables first; else that it is a default."""
        tables: list[tuple[str, Mapping[str, Any]]] = []
        inner = () if self.program == "transformers5" else ("attn_config",)  # DBRX's, which its newest class ignores
        for name in ("rope_parameters", "rope_scaling", "rotary", *inner):
            table = self.raw.get(name)
            if isinstance(table, Mapping):
                inside = table.get(kind)  # that of one kind of layer first
                tables += [(f"{self.prefix}{name}.{kind}.", inside)] if isinstance(inside, Mapping) else []
                tables.append((f"{self.prefix}{name}.", table))
        for prefix, table in [*tables, (self.prefix, self.raw)]:
            # Of two keys with the same number, the one that is for this kind of layer.
            near = "sliding" in (kind or "")
            for key, written in sorted(table.items(), key=lambda row: bool(re.search("local|swa", row[0])) != near):
                same = written == value or written is value or (isinstance(written, list) and value in written)
                if same and not isinstance(written, bool) and re.fullmatch(pattern, key):
                    return f"{prefix}{key}"
        like = "Llama" if self.config.model_type == "llama" else self.config.model_type
        return f"default of {self.model if self.known or self.model in ROTATE else like}"


def fill_in(raw: Mapping[str, Any], source: str, program: str) -> Filled:
    """Return the part of a ``config.json`` that reads text as transformers' own class fills it in.

    Raises CheckpointError for what that class refuses.
    """
    for key, value in walk_settings(raw):  # transformers lists as many before it asks
        counts = key.endswith(("layer", "layers")) and not re.search(r"(id2label|label2id)\.", key)
        if counts and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            check_layers(value, key, source)
    if not isinstance(raw.get("model_type") or "", str):
        raise CheckpointError(f"{source} sets model_type = {show_value(raw['model_type'])}, which is no name")
    # Imported first: it sets the level of its logger, which is quiet below, since what is wrong is raised.
    from transformers import CONFIG_MAPPING, PreTrainedConfig

    part: dict[str, Any] = copy.deepcopy(dict(raw))
    prefix = ""
    with quiet("transformers"):
        while not is_known(part):
            inside = next((key for key in INSIDE if isinstance(part.get(key), dict)), None)
            if inside is None:
                break
            part, prefix = part[inside], f"{prefix}{inside}."
        known = is_known(part) and part.get("use_mla") is not False  # which its class does not have
        try:
            written = PreTrainedConfig._decode_special_floats(copy.deepcopy(part))
            written = written if known else _rename(written, source)
            if program == "transformers4":
                _write_as_before(written)
            if isinstance(rule := written.get("rope_scaling"), dict) and program != "transformers5":
                rule |= {key: "longrope" for key in ("rope_type", "type") if rule.get(key) == "su"}  # its first name
            if written.get("model_type") == "dbrx" and program != "transformers5":  # which ignores this table
                inner = written.get("attn_config")
                written["rope_theta"] = inner.get("rope_theta", 1e4) if isinstance(inner, dict) else 1e4
            config = whole = CONFIG_MAPPING[written["model_type"]].from_dict(written)
        except CheckpointError:
            raise
        except Exception as fault:  # whatever a class of transformers says of a value
            reason = cut_long_line(" ".join(str(fault).split()))
            raise CheckpointError(f"transformers cannot read {source}: {reason or type(fault).__name__}") from fault
    while True:
        # A part that reads text: but for BLT's, which is none of its own where no file has it.
        own = hasattr(type(config), "rope_parameters")
        parts = (key for key in INSIDE if key in part or key == "text_config" or not own)
        inside = next((key for key in parts if isinstance(getattr(config, key, None), PreTrainedConfig)), None)
        if inside is None:
            break
        config, inner = getattr(config, inside), part.get(inside)
        if isinstance(inner, dict):  # else the file is flat, and its keys are handed on
            part, prefix = inner, f"{prefix}{inside}."
    facts = load_families().get(config.model_type, {"pairing": "halves"})
    if config.model_type in IN_ATTENTION or (part.get("model_type") == "chatglm" and part.get("original_rope", True)):
        facts = {**UNKNOWN, "pairing": "interleaved"}
    elif not known and config.model_type == "llama":
        facts = UNKNOWN
    return Filled(part, config, whole, facts, known, source, program, prefix)


def _write_as_before(raw: dict[str, Any]) -> None:
    """Change a file to what transformers 4.57 makes of it, in the keys of transformers 5.

    ``transformers4.json`` has what its classes have otherwise: ``defaults`` of keys, and ``kinds``: where each kind of
    layer has a table, the key and default of the base of ``full`` layers and of ``local`` ones, those with a window;
    ``scaled``: the rule is for these too.
    """
    raw.pop("rope_parameters", None)  # which it does not read
    model, facts = str(raw.get("model_type")), read_facts("transformers4.json")
    defaults = facts["defaults"].get(model, {})
    if raw.get("rope_scaling", defaults) is None and "rope_scaling" in defaults:  # null is no rule, not the default
        raw["rope_parameters"] = {"rope_type": "default", "rope_theta": raw.get("rope_theta", defaults["rope_theta"])}
    for key, value in copy.deepcopy(defaults).items():
        raw.setdefault(key, value)
    rule = raw["rope_scaling"] if isinstance(raw.get("rope_scaling"), dict) else {}
    if model.startswith("qwen3_vl") and rule.get("type") == "su" and "rope_type" not in rule:
        rule["type"] = "default"  # its module reads rope_type alone
    kind = rule.get("rope_type", rule.get("type"))
    rule.pop("rope_theta", None)  # the base stands outside
    if "attn_temperature_tuning" in raw:  # Llama 4's first files have a number
        raw["attn_temperature_tuning"] = bool(raw["attn_temperature_tuning"])
    if kind in ("longrope", "su") and raw.get("original_max_position_embeddings"):
        rule |= {"factor": None, "original_max_position_embeddings": raw["original_max_position_embeddings"]}
    elif kind in ("yarn", "llama3"):
        raw.pop("original_max_position_embeddings", None)  # it looks for it in the table alone
    if model == "nemotron":
        raw.pop("rope_scaling", None)
    elif model in ("glm4v", "glm4v_moe") and "text_config" not in raw:  # a flat file is for the part that reads text
        raw["text_config"] = {**raw, "model_type": f"{model}_text"}
    if (kinds := facts["kinds"].get(model)) is not None:
        keys = (kinds["full"], kinds["local"])
        full, local = (default if raw.get(key) is None else raw[key] for key, default in keys)
        scaled = {**rule, "rope_type": kind or "default"}
        near = {**(copy.deepcopy(scaled) if kinds["scaled"] else {"rope_type": "default"}), "rope_theta": local}
        raw["rope_parameters"] = {"full_attention": {**scaled, "rope_theta": full}, "sliding_attention": near}
        raw.pop("rope_scaling", None)
    for value in raw.values():
        if isinstance(value, dict):
            _write_as_before(value)


def _rename(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return a file of an architecture that transformers does not know in the keys of one that it knows."""
    model, latent = raw.get("model_type"), raw.get("kv_lora_rank") is not None and raw.get("qk_rope_head_dim")
    written = copy.deepcopy(dict(raw))
    for key, others in ALIASES.items():
        alias = next((name for name in (key, *others) if raw.get(name) is not None), None)
        if alias is not None:
            written[key] = copy.deepcopy(raw[alias])
    written["model_type"] = SAME_CODE.get(str(model), "deepseek_v3" if latent else "llama")
    if not model and "rope_ntk_beta" in raw:  # OpenAI's own file of gpt-oss, which names no architecture
        ends = {"beta_fast": raw["rope_ntk_beta"], "beta_slow": raw.get("rope_ntk_alpha"), "truncate": False}
        lengths = {"original_max_position_embeddings": raw.get("initial_context_length")}
        factor = {"rope_type": "yarn", "factor": raw.get("rope_scaling_factor")}
        written |= {"model_type": "gpt_oss", "rope_scaling": {**factor, **lengths, **ends}}
    if written["model_type"] != "llama":
        return written
    kinds = raw.get("attn_type_list")
    if isinstance(kinds, list):  # MiniMax: 1 for softmax attention
        kinds = written["layer_types"] = ["full_attention" if kind == 1 else "linear_attention" for kind in kinds]
    if model == "chatglm" and "kv_channels" in raw:  # half of the channels; the first ChatGLM has another rule
        written["partial_rotary_factor"] = 0.5
    elif model == "internlm" and isinstance(raw.get("rotary"), Mapping):
        written["rope_theta"] = raw["rotary"].get("base", 10000)
        written["rope_scaling"] = {"factor": 1.0, **raw["rotary"]} if raw["rotary"].get("type") == "dynamic" else None
    if written.get("head_dim") is None and not {"hidden_size", "num_attention_heads"} <= set(written):
        raise CheckpointError(f"{source} says neither head_dim nor hidden_size and num_attention_heads")
    kinds = written.get("layer_types")
    written.setdefault("num_hidden_layers", len(kinds) if isinstance(kinds, list) and kinds else 1)
    written.setdefault("hidden_size", written.get("head_dim"))
    if written.get("head_dim") is not None:
        written.setdefault("num_attention_heads", 1)
    if raw.get("rotary_dim") and written.get("partial_rotary_factor") is None:
        sizes = [written.get("head_dim") or written["hidden_size"], written["num_attention_heads"], raw["rotary_dim"]]
        width, heads, channels = (check_count(size, "the size of a head", source) for size in sizes)
        written["partial_rotary_factor"] = channels / (width if written.get("head_dim") else width // heads)
    return written
