"""Shrunk configurations keep what matters, and weights are redrawn so that position is heard."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from clockhands.checking.models.huggingface import HFModel
from clockhands.checking.models.tiny import (
    Build,
    architectures,
    build_model,
    find,
    make_position_audible,
    multimodal,
    overrides,
    shrink,
    tiny_config,
)
from clockhands.errors import UsageError

SAMPLE = [
    "llama:causal",
    "gemma3_text:causal",
    "deepseek_v3:causal",
    "qwen3_next:causal",
    "roberta:masked",
    "t5:seq2seq",
]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_build_is_small_and_speaks(name: str) -> None:
    (build,) = find(name)
    model = build_model(tiny_config(build), build.task)
    assert sum(p.numel() for p in model.parameters()) < 300_000
    ids = torch.arange(10, 30)[None]
    extra = {"decoder_input_ids": ids[:, :8]} if build.task == "seq2seq" else {}
    with torch.no_grad():
        logits = model(input_ids=ids, **extra).logits
    assert torch.isfinite(logits).all()
    assert logits.std() > 0.1


def test_every_kind_of_layer_is_kept() -> None:
    (build,) = find("qwen3_next:causal")
    assert set(tiny_config(build).layer_types) == {"linear_attention", "full_attention"}


def test_a_published_configuration_keeps_its_rotation() -> None:
    published = CONFIG_MAPPING["llama"](
        rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        num_key_value_heads=8, vocab_size=128256, bos_token_id=128000, eos_token_id=[128001, 128009],
    )  # fmt: skip
    config = shrink(published, Build("llama", "causal"))
    assert config.rope_parameters["rope_theta"] == 500000.0
    assert config.rope_parameters["factor"] == 8.0
    assert (config.num_attention_heads, config.num_key_value_heads) == (4, 2)
    assert max(config.bos_token_id, *config.eos_token_id) < config.vocab_size == 160


def test_the_same_seed_gives_the_same_weights_and_another_others() -> None:
    config = tiny_config(find("gpt2:causal")[0])
    one, same, other = (build_model(config, "causal", seed).transformer.wpe.weight for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)
    assert one.std().item() == pytest.approx(1.0, abs=0.05)


def test_unknown_and_skipped_architectures_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="unknown architecture 'llamma'; did you mean 'llama'"):
        find("llamma")
    with pytest.raises(UsageError, match="'musicgen' is not checked: predicts audio codes"):
        find("musicgen")


def test_matrices_have_the_spread_of_their_inputs_also_where_they_are_transposed() -> None:
    """GPT-2 stores [in, out], Llama [out, in]: 1.2/√in either way."""
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=13, n_embd=16, n_layer=1, n_head=2))
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=13, hidden_size=16, intermediate_size=64, num_hidden_layers=1,
                                 num_attention_heads=2)
    )  # fmt: skip
    for model, name in ((gpt2, "mlp.c_fc.weight"), (llama, "mlp.up_proj.weight")):
        spread = (
            next(p for at, p in make_position_audible(model).named_parameters() if at.endswith(name)).detach().std()
        )
        assert float(spread) == pytest.approx(1.2 / 4, rel=0.1)


def test_every_multimodal_type_is_built_or_says_why_not() -> None:
    skipped = {**overrides()["skip"], **multimodal()["skip"]}
    built = {build.type for build in architectures()}
    for name in modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES:
        assert (name in built) != bool(skipped.get(name)), name


@pytest.mark.parametrize("name", ["llava", "granite_speech", "florence2", "qwen3_5", "qwen2_5_omni_thinker"])
def test_a_model_that_reads_more_than_text_is_built_whole_and_reads_text(name: str) -> None:
    (build,) = find(name)
    model = build_model(tiny_config(build), build.task)
    assert type(model).__name__.endswith("ForConditionalGeneration")
    adapter = HFModel(model, build.task)
    assert adapter.logits(torch.arange(20, 28).unsqueeze(0)).shape == (1, 8, 160)
    assert sum(parameter.numel() for parameter in model.parameters()) < 10_000_000
