"""Names of the files of a saved model, and what a configuration may say that a model of this project never does."""

from __future__ import annotations

__all__ = ["ADAPTER", "CONFIG", "FOREIGN", "GENERATION", "INDEX", "OWN", "PICKLES", "TOKENIZER", "WEIGHTS"]

OWN = "clockhands"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER, GENERATION = "tokenizer_config.json", "generation_config.json"
ADAPTER = "adapter_config.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
FOREIGN = (
    "auto_map", "custom_pipelines", "quantization_config", "attn_implementation", "experts_implementation",
    "fusion_config", "transformers_weights",
)  # fmt: skip
"""Settings by which transformers loads or runs something else; a model of this project has none of them."""
