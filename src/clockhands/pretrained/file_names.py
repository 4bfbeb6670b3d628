"""Names of the files of a saved model, and what a configuration may say that a model of this project never does."""

from __future__ import annotations

__all__ = [
    "ADAPTER",
    "CONFIG",
    "FOREIGN",
    "GENERATION",
    "INDEX",
    "LOADING_CODE",
    "OWN",
    "OWN_AUTO_MAP",
    "PICKLES",
    "TOKENIZER",
    "WEIGHTS",
]

OWN = "clockhands"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER, GENERATION = "tokenizer_config.json", "generation_config.json"
ADAPTER = "adapter_config.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
LOADING_CODE = "modeling_clockhands.py"
"""A file beside the weights that imports the classes of this project, for transformers with trust_remote_code."""
OWN_AUTO_MAP = {
    auto_class: f"{LOADING_CODE.removesuffix('.py')}.{name}"
    for auto_class, name in (
        ("AutoConfig", "ClockhandsConfig"),
        ("AutoModelForSeq2SeqLM", "ClockhandsForSeq2SeqLM"),
        ("AutoModelForCausalLM", "ClockhandsForCausalLM"),
        ("AutoModelForMaskedLM", "ClockhandsForMaskedLM"),
    )
}
"""What ``auto_map`` of a model of this project may say. Nothing here reads it: the classes are imported directly."""
FOREIGN = (
    "auto_map", "custom_pipelines", "quantization_config", "attn_implementation", "experts_implementation",
    "fusion_config", "transformers_weights",
)  # fmt: skip
"""Settings that make transformers load or run something else; a model of this project has none of them but
``auto_map`` with values of ``OWN_AUTO_MAP``."""
