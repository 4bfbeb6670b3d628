"""Architectures of transformers whose keys about position are written, and what they have keys for."""

from __future__ import annotations

ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "llama": (),
    "stablelm": (),
    "mistral": ("one window",),
    "qwen3": ("windows", "use_sliding_window"),
    "gpt_oss": ("windows",),
    "gemma3_text": ("windows", "rotation by kind"),
    "gemma4_text": ("windows", "rotation by kind"),
    "olmo3": ("windows", "rotation by kind"),
    "modernbert": ("windows", "rotation by kind", "local_attention"),
    "cohere2": ("windows",),
    "smollm3": ("windows", "no_rope_layers", "use_sliding_window"),
    "llama4_text": ("chunks", "no_rope_layers", "temperature"),
    "qwen3_next": ("full attention",),
    "deepseek_v3": ("slice",),
    "mistral_large4_text": ("no_rope_layers", "slice"),
    "mpnet": ("table and buckets",),
}
"""The architectures, by ``model_type``, whose keys are known here, and what they have keys for besides a rotation.

- ``one window``: a window in every layer (``sliding_window``).
- ``windows``: a window in the layers that ``layer_types`` names (``sliding_window``).
- ``local_attention``, ``use_sliding_window``, ``no_rope_layers``: the key of this name.
- ``chunks``: chunked attention in the layers that ``layer_types`` names (``attention_chunk_size``).
- ``full attention``: ``layer_types``, in which only layers of full attention are written.
- ``rotation by kind``: a rotation for each type of layer in ``rope_parameters``.
- ``temperature``: Llama 4's factor of queries by position (``floor_scale``, ``attn_scale``).
- ``slice``: only a slice of each head rotates (``qk_rope_head_dim``, ``qk_nope_head_dim``).
- ``table and buckets``: a learned table and T5's buckets, as in MPNet.
"""
