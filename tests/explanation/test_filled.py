"""Raw configurations, nothing between: what is told equals transformers' own class, rotary module and masks."""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import math
import random
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AttentionInterface, AttentionMaskInterface, AutoModel
from transformers.masking_utils import eager_mask

from clockhands.explanation import compare, describe
from clockhands.explanation.filled import load_families
from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.table import Layer
from tests.explanation.modules import rotary_modules
from tests.explanation.raw_variants import FULL, LINEAR, SLIDING, make_variants

FAMILIES = sorted(load_families())
WITH_RULES_OF_THEIR_OWN = (
    *("gemma3_text", "olmo3", "modernbert", "gemma4_text", "step3p5", "mimo_v2_flash", "hunyuan_v1_dense"),
    *("minimax_m2", "bamba", "lfm2", "llama4_text", "mistral", "gpt_neox", "deepseek_v3", "ernie4_5_vl_moe_text"),
)
SELDOM_READ = ("blt", "cohere_compass_text")
"""Architectures of which transformers itself refuses most variants: it reads 2 and 5 of 85."""
DRAWN = random.Random(38).sample([name for name in FAMILIES if name not in WITH_RULES_OF_THEIR_OWN], 10)
NAMES = [
    pytest.param(name, marks=() if name in (*WITH_RULES_OF_THEIR_OWN, *DRAWN) else pytest.mark.exhaustive)
    for name in FAMILIES
]


def find_width(name: str) -> int:
    """The channels of a head by default, for LongRoPE's lists."""
    try:
        config = CONFIG_MAPPING[name]()
        return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    except Exception:
        return 128


def read_by_transformers(raw: dict[str, Any]) -> dict[str | None, tuple[list[float], float]] | None:
    """Kind of layer -> frequencies and amplitude; None where transformers itself refuses."""
    try:
        config = CONFIG_MAPPING[raw["model_type"]].from_dict(copy.deepcopy(raw)).get_text_config()
        return rotary_modules(config)
    except Exception:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_frequencies_and_amplitudes_are_those_of_the_rotary_module(name: str, request: pytest.FixtureRequest) -> None:
    variants = make_variants(find_width(name))
    assert len(variants) >= 45
    if not request.config.getoption("--exhaustive"):
        count = 40 if name in WITH_RULES_OF_THEIR_OWN else 15
        variants = dict(random.Random(name).sample(sorted(variants.items()), count))
    read = 0
    for variant, changes in variants.items():
        raw = {"model_type": name, **changes}
        modules = read_by_transformers(raw)
        if modules is None or ("layer_rope_theta" in raw and name.endswith("_swa")):  # a module for each base there
            continue
        ours = read_huggingface(raw, variant)
        read += 1
        for kind, (frequencies, amplitude) in modules.items():
            for rotation in {layer.rotation for layer in ours.layers if layer.rotation and kind in (None, layer.kind)}:
                assert rotation.frequencies() == pytest.approx(frequencies, rel=1e-12, abs=0), variant
                assert rotation.amplitude == pytest.approx(amplitude, rel=1e-12), variant
    assert read >= (1 if name in SELDOM_READ else len(variants) // 4)


def test_phi_3_5_moe_multiplies_by_its_own_scale_and_keeps_its_short_factors() -> None:
    """By what its module returns at position 0 and at one beyond the original length, not by its attributes."""
    lists = {"short_factor": [1.0] * 64, "long_factor": [1.0 + pair for pair in range(64)]}
    rule = {"type": "longrope", **lists, "short_mscale": 1.243163, "long_mscale": 1.243163,
            "original_max_position_embeddings": 64}  # fmt: skip
    raw = {"model_type": "phimoe", "num_hidden_layers": 1, "max_position_embeddings": 2048, "rope_scaling": rule}
    config = CONFIG_MAPPING["phimoe"].from_dict(copy.deepcopy(raw))
    code = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    cos, _ = code.PhimoeRotaryEmbedding(config)(torch.zeros(1, 2, 1), torch.tensor([[0, 100]]))
    rotation = read_huggingface(raw, "f").layers[0].rotation
    assert rotation is not None and rotation.amplitude == pytest.approx(float(cos[0, 0, 0]))
    ours = [rotation.amplitude * math.cos(100 * omega) for omega in rotation.frequencies(2048)]
    assert cos[0, 1, :64].tolist() == pytest.approx(ours, abs=1e-4)


def test_a_file_has_a_base_for_each_layer_that_is_that_of_its_module() -> None:
    raw = {"model_type": "granite_swa", "num_hidden_layers": 4, "layer_rope_theta": [1e4, 0, 2e4, 0]}
    layers = read_huggingface(raw, "f").layers
    assert [layer.rotation and layer.rotation.base for layer in layers] == [1e4, None, 2e4, None]


# The shipped files, as far as they are about position.
GEMMA3 = {"model_type": "gemma3", "text_config": {
    "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}  # fmt: skip
OLMO3 = {"model_type": "olmo3", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
         "max_position_embeddings": 65536, "rope_theta": 500000, "sliding_window": 4096,
         "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192,
                          "attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1}}  # fmt: skip
SCOUT = {"model_type": "llama4", "text_config": {
    "model_type": "llama4_text", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 48,
    "max_position_embeddings": 10485760, "rope_theta": 500000.0, "attention_chunk_size": 8192,
    "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0, "rope_type": "llama3",
                     "original_max_position_embeddings": 8192}}}  # fmt: skip


def get_rotations(raw: dict[str, Any]) -> list[tuple[str, Any, Any, Any, Any]]:
    """Kind, base, rule, factor and channels of each different layer, in order of first appearance."""
    rows = [
        (layer.kind, layer.rotation.base, layer.rotation.rule, layer.rotation.factor, layer.rotation.channels)
        for layer in read_huggingface(raw, "f").layers
        if layer.rotation
    ]
    return list(dict.fromkeys(rows))


def test_shipped_gemma_3_and_olmo_3_scale_the_full_layers_alone() -> None:
    assert get_rotations(GEMMA3) == [(SLIDING, 1e4, "default", 1.0, 256), (FULL, 1e6, "linear", 8.0, 256)]
    assert get_rotations(OLMO3) == [(SLIDING, 5e5, "default", 1.0, 128), (FULL, 5e5, "yarn", 8.0, 128)]
    plain = read_huggingface(OLMO3, "f").layers[0].rotation
    assert plain is not None and plain.amplitude == 1.0


def test_shipped_files_with_keys_of_their_own() -> None:
    hunyuan = {"model_type": "hunyuan_v1_dense", "head_dim": 128, "num_hidden_layers": 1, "rope_theta": 10000.0,
               "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}}  # fmt: skip
    ((_, base, rule, _, _),) = get_rotations(hunyuan)
    assert (base, rule) == (pytest.approx(10000.0 * 1000.0 ** (128 / 126), rel=1e-12), "default")
    minimax = {"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64, "rope_theta": 5e6, "num_hidden_layers": 1}
    assert get_rotations(minimax) == [(FULL, 5e6, "default", 1.0, 64)]
    bamba = read_huggingface({"model_type": "bamba", "attn_layer_indices": [9, 18, 27], "num_hidden_layers": 32}, "f")
    assert [index for index, layer in enumerate(bamba.layers) if layer.attends] == [9, 18, 27]
    assert bamba.layers[9].rotation is not None
    assert bamba.layers[9].rotation.channels == bamba.layers[9].rotation.head_dim // 2
    lfm2 = read_huggingface({"model_type": "lfm2", "full_attn_idxs": [2], "num_hidden_layers": 6}, "f")
    assert [index for index, layer in enumerate(lfm2.layers) if layer.attends] == [2]
    step = {"model_type": "step3p5", "num_hidden_layers": 4, "rope_theta": [5e6, 1e4, 1e4, 1e4], "sliding_window": 512,
            "layer_types": [FULL, SLIDING, SLIDING, SLIDING]}  # fmt: skip
    assert [row[1] for row in get_rotations(step)] == [5e6, 1e4]
    gemma4 = {"model_type": "gemma4_text", "hidden_size": 2304, "num_attention_heads": 8, "num_hidden_layers": 6}
    assert [row[4] for row in get_rotations(gemma4)] == [256, 512]


def test_llama_4_scout_has_a_step_in_place_of_a_ramp() -> None:
    layers = read_huggingface(SCOUT, "f").layers
    rotation = layers[0].rotation
    assert rotation is not None and layers[0].chunk == 8192 and layers[3].rotation is None
    modules = read_by_transformers({"model_type": "llama4_text", **SCOUT["text_config"]})  # type: ignore[dict-item]
    assert modules is not None and rotation.frequencies() == pytest.approx(modules[None][0], rel=1e-12, abs=0)
    plain = [rotation.base ** (-2 * pair / 128) for pair in range(64)]
    assert {round(a / b, 9) for a, b in zip(plain, rotation.frequencies(), strict=True)} == {1.0, 16.0}


def test_what_a_class_says_where_a_file_says_nothing() -> None:
    first = [read_huggingface({"model_type": name}, "f").layers[0] for name in ("mistral", "moshi", "neomme")]
    assert [layer.window for layer in first] == [4096, 3000, 257]
    llama4 = read_huggingface({"model_type": "llama4_text"}, "f").layers
    assert (llama4[0].chunk, llama4[0].temperature, "8192" in llama4[3].temperature) == (8192, "", True)
    assert "0.1 ln" in read_huggingface({"model_type": "ministral3"}, "f").layers[0].temperature
    for name in ("exaone4", "exaone_moe", "kolibri1"):
        layers = read_huggingface({"model_type": name}, "f").layers
        assert [layer.rotation is None for layer in layers] == [layer.kind == FULL for layer in layers]


@pytest.mark.parametrize("name", ["gptj", "codegen"])
def test_what_rotates_in_attention_turns_by_the_table_of_its_code(name: str) -> None:
    """Raw files of GPT-J and CodeGen name no base: the truth is the table that their code makes."""
    code = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    sines = code.create_sinusoidal_positions(2, 32)[1, :16]
    rotation = read_huggingface({"model_type": name, "n_embd": 1024, "n_head": 16, "rotary_dim": 32}, "f").rotations()[
        0
    ]
    assert [math.sin(omega) for omega in rotation.frequencies()] == pytest.approx(sines.tolist(), rel=1e-6)
    assert (rotation.pairing, rotation.channels, rotation.head_dim) == ("interleaved", 32, 64)


SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2, "max_position_embeddings": 4096}
CHATGLM = {"model_type": "chatglm", "hidden_size": 4096, "kv_channels": 128, "num_attention_heads": 32, "num_layers": 2,
           "seq_length": 8192, "original_rope": True}  # fmt: skip
LATENT = {**SIZES, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rope_theta": 5e4}
NTK = {"type": "ntk", "factor": 8.0}
WITH_THEIR_WEIGHTS: dict[str, tuple[dict[str, Any], tuple[int, int, float, str] | None]] = {
    "GLM 4": ({**CHATGLM, "rope_ratio": 500}, (64, 128, 5e6, "interleaved")),
    "ChatGLM 3": (CHATGLM, (64, 128, 1e4, "interleaved")),
    "Baichuan 7B": ({"model_type": "baichuan", **SIZES}, (128, 128, 1e4, "halves")),
    "Baichuan 13B": ({"model_type": "baichuan", **SIZES, "hidden_size": 5120, "num_attention_heads": 40}, None),
    "Kimi K2": ({"model_type": "kimi_k2", **LATENT}, (64, 64, 5e4, "interleaved")),
    "Falcon": ({"model_type": "RefinedWebModel", "hidden_size": 4544, "n_head": 71, "n_layer": 2, "alibi": False},
               (64, 64, 1e4, "halves")),
    "MiniMax 01": ({"model_type": "minimax_text_01", **SIZES, "head_dim": 128, "rotary_dim": 64, "rope_theta": 1e7,
                    "attn_type_list": [0, 1]}, (64, 128, 1e7, "halves")),
    "Phi 1.5": ({"model_type": "phi-msft", "n_embd": 2048, "n_head": 32, "n_layer": 2, "rotary_dim": 32},
                (32, 64, 1e4, "halves")),
    "OpenELM": ({"model_type": "openelm", "head_dim": 64, "num_transformer_layers": 2, "rope_freq_constant": 20000},
                (64, 64, 2e4, "halves")),
    "InternLM": ({"model_type": "internlm", **SIZES, "rotary": {"base": 20000, "type": "origin"}},
                 (128, 128, 2e4, "halves")),
    "GTE": ({"model_type": "new", **SIZES, "rope_theta": 20000, "rope_scaling": NTK}, (128, 128, 1.6e5, "halves")),
    "Jais": ({"model_type": "jais", **SIZES, "position_embedding_type": "alibi"}, None),
    "DeepSeek-OCR": ({"model_type": "deepseek_vl_v2", "language_config": {
        "model_type": "deepseek_v2", **SIZES, "use_mla": False, "kv_lora_rank": None, "qk_rope_head_dim": 0}},
        (128, 128, 1e4, "halves")),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_THEIR_WEIGHTS)
def test_files_whose_code_comes_with_the_weights_are_read_by_the_rules_of_that_code(name: str) -> None:
    """By hand from the code beside the weights, and what vLLM has of it: channels, width, base and pairs."""
    raw, expected = WITH_THEIR_WEIGHTS[name]
    layer = read_huggingface(raw, "f").layers[-1]
    rotation = layer.rotation
    assert (rotation and (rotation.channels, rotation.head_dim, rotation.base, rotation.pairing)) == expected
    assert len(read_huggingface(raw, "f").layers) == 2
    if name == "GTE":  # a base times s, and all frequencies over s^(2/d): the slowest is that of a base times s
        assert rotation is not None and rotation.frequencies()[-1] == pytest.approx(20000 ** (-126 / 128) / 8)


def test_what_a_file_does_not_say_is_not_called_no_rotation() -> None:
    for raw in ({"model_type": "telechat", **SIZES}, {**CHATGLM, "position_encoding_2d": True}):
        positions = read_huggingface(raw, "f")
        assert positions.entry.startswith("not known") and "rotates nothing" not in describe(positions)
        difference = compare(positions, read_huggingface({"model_type": "llama", **SIZES}, "f"))
        assert difference is not None and "not known" in difference.what


def test_layers_that_attend_to_pictures_and_a_class_without_a_length_are_told_as_they_are() -> None:
    text = {"model_type": "mllama_text_model", "num_hidden_layers": 4, "cross_attention_layers": [1]}
    kinds = [layer.kind for layer in read_huggingface({"model_type": "mllama", "text_config": text}, "f").layers]
    assert kinds == [FULL, "cross_attention", FULL, FULL]
    xlnet = read_huggingface(
        {"model_type": "xlnet", "n_layer": 2}, "f"
    )  # its class says -1, which is a fault in a file
    assert xlnet.claimed_length is xlnet.trained_length is None


@pytest.mark.parametrize("name", ["llava", "glm4v", "musicflamingo", "gemma3"])
def test_a_flat_file_of_a_model_of_pictures_is_what_its_class_makes_of_it(name: str) -> None:
    raw = {"model_type": name, "rope_theta": 12345.0, "num_hidden_layers": 4, "rope_scaling": LINEAR}
    truth = read_by_transformers(raw)
    assert truth
    for layer in read_huggingface(copy.deepcopy(raw), "f").layers:
        frequencies, _ = truth.get(layer.kind, truth.get(None)) or ([], 0)
        assert layer.rotation is not None and layer.rotation.frequencies() == pytest.approx(frequencies, rel=1e-12)


SMALL: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 4, "vocab_size": 64,
    "intermediate_size": 32, "max_position_embeddings": 64, "moe_intermediate_size": 16, "num_experts": 4,
    "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "head_dim": 16, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16, "v_head_dim": 16, "shared_expert_intermediate_size": 16, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 64,
}  # fmt: skip
LENGTH, MOST_PARAMETERS = 9, 20_000_000
MASKED: dict[str, dict[str, Any]] = {
    "window": {"sliding_window": 3, "local_attention": 4},
    "chunk": {"attention_chunk_size": 4},
    "nothing": {},
    "null window": {"sliding_window": None},
    "kinds": {"sliding_window": 3, "layer_types": [SLIDING, FULL] * 2},
}
ASKED_FOR_MASKS = ("llama", "mistral", "gemma3_text", "cohere2", "exaone4", "llama4_text", "smollm3", "qwen3",
                   "modernbert", "gpt_oss", "afmoe", "olmo3", "phi3", "muse_glimmer_text", "minimax")  # fmt: skip
NOT_COMPARED = {
    "diffllama": "calls its attention twice in a layer",
    "gpt_neox_japanese": "does not ask the interface of attention",
    "moshi": "has its window in its cache alone",
}
Row = tuple[bool, list[int]]


def watch_attention(raw: dict[str, Any]) -> list[Row]:
    """Run a tiny model; for each layer whether it rotated, and how many tokens each query saw, itself included."""
    config = CONFIG_MAPPING[raw["model_type"]].from_dict(copy.deepcopy(raw))
    code = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    rows: list[Row] = []
    turned = [False]

    def attend(module: Any, q: Any, k: Any, v: Any, attention_mask: Any = None, **_: Any) -> tuple[Any, None]:
        seen = [query + 1 for query in range(LENGTH)]
        if attention_mask is not None:
            mask = attention_mask[0, 0] if attention_mask.dtype == torch.bool else attention_mask[0, 0] > -1
            seen = [query - int(mask[query, :LENGTH].nonzero().min()) + 1 for query in range(LENGTH)]
        rows.append((turned[0], seen))
        turned[0] = False
        return torch.zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[-1]), None

    def watch(function: Any) -> Any:
        def call(*inputs: Any, **more: Any) -> Any:
            turned[0] = True
            return function(*inputs, **more)

        return call

    AttentionInterface.register("watched", attend)
    AttentionMaskInterface.register("watched", eager_mask)
    config._attn_implementation = "watched"
    with torch.device("meta"):
        if sum(one.numel() for one in AutoModel.from_config(config).parameters()) > MOST_PARAMETERS:
            raise ValueError("no tiny model")
    model = AutoModel.from_config(config).eval()
    with pytest.MonkeyPatch.context() as patch, torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        for name in [name for name in vars(code) if name.startswith("apply_rotary") and "vision" not in name]:
            patch.setattr(code, name, watch(getattr(code, name)))
        model(input_ids=torch.arange(3, 3 + LENGTH)[None], use_cache=False)
    return rows


def tell_row(layer: Layer) -> Row:
    """What `watch_attention` would see of a layer."""
    reach, chunk = layer.window or LENGTH, layer.chunk or LENGTH
    return layer.rotation is not None, [min(query % chunk + 1, reach) for query in range(LENGTH)]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ASKED_FOR_MASKS else pytest.mark.exhaustive) for n in FAMILIES]
)
def test_layers_see_and_rotate_as_the_model_does(name: str) -> None:
    if name in NOT_COMPARED:
        pytest.skip(NOT_COMPARED[name])
    compared = 0
    for variant, changes in MASKED.items():
        raw = {"model_type": name, **SMALL, **changes}
        try:
            theirs = watch_attention(raw)
        except Exception:  # no tiny model of these sizes, or no model of text alone
            continue
        ours = [tell_row(layer) for layer in read_huggingface(raw, variant).layers if layer.attends]
        if not theirs and not any(turns for turns, _ in ours):  # attention that asks no interface
            continue
        assert ours == theirs, variant
        compared += 1
    if not compared:
        assert name not in ASKED_FOR_MASKS
        pytest.skip("transformers makes no tiny model of text of it")


def test_the_facts_are_those_of_the_installed_transformers() -> None:
    import transformers

    if not transformers.__version__.startswith("5.23"):
        pytest.skip("the facts are those of transformers 5.23")
    from docs.tools.make_families import describe

    drawn = [*WITH_RULES_OF_THEIR_OWN, *DRAWN]
    assert {name: describe(CONFIG_MAPPING[name]) for name in drawn} == {name: load_families()[name] for name in drawn}
