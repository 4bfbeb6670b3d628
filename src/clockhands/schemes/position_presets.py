"""Positions of real models by name: which layers rotate, how many channels, at which base, and what they see.

Each is a table ``[position]`` as recipes have it, with the numbers of the model's published checkpoint. Windows count
the query's own token in those models, and do not here.
"""

from __future__ import annotations

from typing import Any

from clockhands.catalogue import Catalogue

_YARN_OF_GPT_OSS = {
    "scheme": "rope", "base": 150_000.0, "spectrum": "yarn", "factor": 32.0, "original_length": 4096, "truncate": False,
}  # fmt: skip
_ROPE_OF_OLMO_3 = {"scheme": "rope", "base": 500_000.0}
_YARN_OF_OLMO_3 = {**_ROPE_OF_OLMO_3, "spectrum": "yarn", "factor": 8.0, "original_length": 8192}
_LOCAL_OF_GEMMA = {"schemes": [{"scheme": "rope", "base": 10_000.0}, {"scheme": "window", "left": 511}]}

POSITION_PRESETS: Catalogue[dict[str, Any]] = Catalogue("position preset", {
    # Mistral 7B v0.1: a window in every layer.
    "mistral": {"scheme": "composition", "schemes": ["rope", {"scheme": "window", "left": 4095}]},
    # gpt-oss: windows of 128 in every other layer, sinks and YaRN in all.
    "gpt-oss": {
        "scheme": "none", "layers": ["local", "global", "..."],
        "kinds": {
            "local": {"schemes": [_YARN_OF_GPT_OSS, {"scheme": "window", "left": 127}, "sinks"]},
            "global": {"schemes": [_YARN_OF_GPT_OSS, "sinks"]},
        },
    },
    # Gemma 3 1B: five layers with windows at one base, one without a window at another.
    "gemma-3": {
        "scheme": "none", "layers": [*["local"] * 5, "global", "..."],
        "kinds": {"local": _LOCAL_OF_GEMMA, "global": {"scheme": "rope", "base": 1e6}},
    },
    # Gemma 4: as Gemma 3, and the global layers turn the fastest quarter of their frequencies alone.
    "gemma-4": {
        "scheme": "none", "layers": [*["local"] * 5, "global", "..."],
        "kinds": {
            "local": _LOCAL_OF_GEMMA,
            "global": {"scheme": "rope", "base": 1e6, "spectrum": "proportional", "share": 0.25},
        },
    },
    # ModernBERT: every third layer is global, from the first on.
    "modernbert": {
        "scheme": "none", "layers": ["global", "local", "local", "..."],
        "kinds": {
            "global": {"scheme": "rope", "base": 160_000.0},
            "local": {"schemes": ["rope", {"scheme": "window", "left": 64}]},
        },
    },
    # Llama 4 Maverick (iRoPE): chunks with RoPE, and every fourth layer without rotation sharpens with length.
    "llama-4": {
        "scheme": "none", "layers": [*["local"] * 3, "global", "..."],
        "kinds": {
            "local": {
                "schemes": [
                    {"scheme": "rope", "base": 500_000.0, "layout": "interleaved"}, {"scheme": "chunks", "size": 8192},
                ]
            },
            "global": {"scheme": "temperature", "form": "floor", "coefficient": 0.1, "length": 8192},
        },
    },
    # SmolLM3: every fourth layer has no position.
    "smollm3": {
        "scheme": "none", "layers": [*["rotating"] * 3, "none", "..."],
        "kinds": {"rotating": {"scheme": "rope", "base": 5e6}},
    },
    # Command R7B: windows with RoPE, and every fourth layer sees all and has no position.
    "cohere-2": {
        "scheme": "none", "layers": [*["local"] * 3, "none", "..."],
        "kinds": {
            "local": {
                "schemes": [
                    {"scheme": "rope", "base": 50_000.0, "layout": "interleaved"}, {"scheme": "window", "left": 4095},
                ]
            },
        },
    },
    # OLMo 3 7B: YaRN in the layers without a window alone.
    "olmo-3": {
        "scheme": "none", "layers": [*["local"] * 3, "global", "..."],
        "kinds": {
            "local": {"schemes": [_ROPE_OF_OLMO_3, {"scheme": "window", "left": 4095}]}, "global": _YARN_OF_OLMO_3,
        },
    },
    # Qwen3-Next, of whose layers every fourth has a softmax: a quarter of the channels turns.
    "qwen3-next": {"scheme": "rope", "base": 1e7, "fraction": 0.25},
    # DeepSeek-V3: 64 of 192 channels turn, which keys share (MLA), by YaRN; all channels get its factor of the logits.
    "deepseek-v3": {
        "scheme": "rope", "base": 10_000.0, "fraction": 1 / 3, "layout": "interleaved", "spectrum": "yarn",
        "factor": 40.0, "original_length": 4096, "mscale": 1.0, "mscale_all_dim": 1.0,
    },
    # Mistral Large 4: half of the channels turns (MLA), each pair at a frequency with a learned factor, in three layers
    # of four; in all, each head learns how much sharper it gets with the logarithm of the position.
    "mistral-large-4": {
        "scheme": "ssmax", "bias": True, "start": 0.0, "layers": [*["rotating"] * 3, "none", "..."],
        "kinds": {
            "rotating": {
                "scheme": "rope", "base": 10_000.0, "fraction": 0.5, "layout": "interleaved", "learned": True,
                "spectrum": "yarn", "factor": 2048.0, "original_length": 512, "attention_factor": 1.0,
            }
        },
    },
    # MPNet: a learned table at the embedding, and T5's biases in all layers.
    "mpnet": {
        "scheme": "composition",
        "schemes": [{"scheme": "learned", "max_length": 512}, {"scheme": "t5", "num_buckets": 32, "max_distance": 128}],
    },
    # Of this project, what most models of 2026 have in common: short windows with plain RoPE and sinks, and every
    # fourth layer sees all, turns nothing, and sharpens with the logarithm of the position.
    "hybrid-2026": {
        "scheme": "none", "layers": [*["local"] * 3, "global", "..."],
        "kinds": {
            "local": {"schemes": ["rope", {"scheme": "window", "left": 127}, "sinks"]},
            "global": {"schemes": [{"scheme": "temperature", "form": "log", "length": 1024}, "sinks"]},
        },
    },
})  # fmt: skip
