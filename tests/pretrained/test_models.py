"""Models are opened in one place, from safetensors alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPTJConfig,
    LlamaConfig,
    MarianConfig,
    MarianMTModel,
)

from clockhands.errors import CheckpointError, ClockhandsWarning
from clockhands.pretrained import build_model, count_numbers, load_model
from clockhands.pretrained.models import check_fits, count_stored_bytes, list_weight_files, refuse_not_finite

LLAMA = LlamaConfig(
    vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, head_dim=4
)


def test_numbers_are_counted_by_hand() -> None:
    """Embedding; by layer four projections, three matrices of the network, two norms; the last norm; 2 frequencies."""
    layer = 4 * 8 * 8 + 3 * 8 * 12 + 2 * 8
    (*buffers,) = build_model(AutoModel, LLAMA).buffers()
    assert count_numbers(AutoModel, LLAMA) == 11 * 8 + 2 * layer + 8 + sum(buffer.numel() for buffer in buffers)


def test_a_count_makes_no_weights() -> None:
    """A model of 10¹³ numbers is counted where nothing could hold it."""
    huge = LlamaConfig(vocab_size=10**9, hidden_size=10**4, num_hidden_layers=1, num_attention_heads=2)
    count = count_numbers(AutoModel, huge)
    assert count is not None and count > 10**13


def test_what_cannot_be_built_is_not_counted() -> None:
    broken = LlamaConfig(**{**LLAMA.to_dict(), "hidden_act": "no such activation"})
    assert count_numbers(AutoModel, broken) is None


def change_config(folder: Path, **keys: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf8")), **keys}), encoding="utf8")
    return folder


def change_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(path)
    change(weights)
    save_file(weights, path, {"format": "pt"})


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    AutoModelForCausalLM.from_config(LLAMA).save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def rename(old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: change_weights(folder / "model.safetensors", lambda w: w.update({new: w.pop(old)}))


def add(**weights: Any) -> Callable[[Path], object]:
    return lambda folder: change_weights(folder / "model.safetensors", lambda w: w.update(weights))


def store_projections(dtype: torch.dtype) -> Callable[[Path], object]:
    """Store the projections as other numbers, without what they are to be multiplied by."""
    projections = {name: torch.ones(shape).to(dtype) for name, shape in PROJECTIONS.items()}
    return lambda folder: change_weights(folder / "model.safetensors", lambda w: w.update(projections))


PROJECTIONS = {f"model.layers.{layer}.mlp.up_proj.weight": (12, 8) for layer in (0, 1)}
SCALES = {"model.layers.0.mlp.up_proj.weight_scale": torch.ones(1)}


def change(**keys: Any) -> Callable[[Path], object]:
    return lambda folder: change_config(folder, **keys)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (change(num_hidden_layers=6), r"layers\.2\.input_layernorm\.weight, .* and 33 more are missing; put back"),
        (rename("model.embed_tokens.weight", "model.old"), r"embed_tokens\.weight is missing; model\.old has no place"),
        (change(vocab_size=12), r"lm_head\.weight has shape \[11, 8\], not \[12, 8\]"),
        (change(tie_word_embeddings=True), r"it ties lm_head\.weight to model\.embed_tokens\.weight, and the files"),
        (add(**SCALES), r"up_proj\.weight_scale has no place in it"),
        (change(quantization_config={"quant_method": "theirs"}), r"quantised in a way .* 'theirs'"),
        (lambda folder: (folder / "generation_config.json").write_text("{"), r"generation_config\.json"),
    ],
    ids=["layers", "renamed", "size", "tied", "scales", "quantised", "generation"],
)
def test_what_the_files_do_not_hold_is_not_made_up(
    llama: Path, break_it: Callable[[Path], object], message: str
) -> None:
    """Of layers four are missing, of nine weights each."""
    break_it(llama)
    with pytest.raises(CheckpointError, match=message):
        load_model(AutoModelForCausalLM, llama)


def test_numbers_of_eight_bits_are_refused_where_a_layer_would_multiply_them(llama: Path) -> None:
    """As numbers without a scale they can be read, but not left as they are."""
    store_projections(torch.float8_e4m3fn)(llama)
    with pytest.raises(CheckpointError, match=r"layers\.0\.mlp\.up_proj\.weight has numbers of 8 bits"):
        load_model(AutoModelForCausalLM, change_config(llama, quantization_config={"quant_method": "fp8"}))


def test_a_part_that_nothing_reads_is_told_also_where_it_is_quantised(llama: Path) -> None:
    add(**{"mtp.fc.weight": torch.ones(8, 8), "mtp.fc.weight_scale_inv": torch.ones(1)})(llama)
    with pytest.warns(ClockhandsWarning, match=r"mtp\.fc\.weight, mtp\.fc\.weight_scale_inv are not read"):
        load_model(AutoModelForCausalLM, llama)


@pytest.mark.parametrize(
    ("factor", "dtype", "linear", "other"),
    [(4, None, 1, True), (1, None, 1, False), (1, torch.bfloat16, 1, False), (1, None, 4, False), (8, None, 4, True)],
)
def test_stored_frequencies_that_are_not_the_configurations_are_told(
    llama: Path, factor: float, dtype: torch.dtype | None, linear: float, other: bool, recwarn: pytest.WarningsRecorder
) -> None:
    """Files of 2023 hold them, before linear scaling; transformers passes over them, and older programs read them."""
    change_config(llama, rope_scaling={"rope_type": "linear", "factor": linear})
    stored = (10000.0 ** -torch.arange(0, 1, 0.5) / factor).to(dtype)
    save_file({"rotary_emb.inv_freq": stored * 9}, llama / "of-another-model.safetensors")
    add(**{f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": stored.clone() for layer in range(2)})(llama)
    load_model(AutoModelForCausalLM, llama)
    told = [str(one.message) for one in recwarn if one.category is ClockhandsWarning]
    assert len(told) == other and all("model.layers.0.self_attn.rotary_emb.inv_freq" in text for text in told)


def test_the_files_of_a_hub_name_are_judged_where_the_cache_has_them(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight that stands in two files is refused, as in a folder."""
    from huggingface_hub import constants

    snapshot = tmp_path / "hub" / "models--some--llama" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    weights = load_file(llama / "model.safetensors")
    (llama / "model.safetensors").rename(llama / "a.safetensors")
    save_file(weights, llama / "b.safetensors", {"format": "pt"})
    index = {name: "ab"[place % 2] + ".safetensors" for place, name in enumerate(sorted(weights))}
    (llama / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    llama.rename(snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(CheckpointError, match="stands in two files"):
        load_model(AutoModelForCausalLM, "some/llama", cache_dir=str(tmp_path / "hub"))


def test_layers_that_the_files_have_too_many_are_told(llama: Path) -> None:
    with pytest.warns(ClockhandsWarning, match=r"its LlamaModel has no place for: .* and 6 more are not read") as told:
        model = load_model(AutoModel, change_config(llama, num_hidden_layers=1))
    assert len(model.layers) == 1 and "lm_head" not in str(told[0].message), "a head that is not opened is no fault"


LOST = "model.layers.1.mlp.up_proj.weight"


def keep_index(index: dict[str, str], folder: Path) -> None:
    change_weights(folder / index[LOST], lambda weights: weights.update(other=weights.pop(LOST)))


def name_another(index: dict[str, str], folder: Path) -> None:
    index[LOST] = next(name for name in index.values() if name != index[LOST])


def store_twice(index: dict[str, str], folder: Path) -> None:
    other = next(name for name in index.values() if name != index[LOST])
    change_weights(folder / other, lambda weights: weights.update({LOST: torch.ones(12, 8)}))


@pytest.mark.parametrize("break_it", [keep_index, name_another, store_twice])
def test_an_index_that_does_not_fit_its_files_is_refused(tmp_path: Path, break_it: Callable[..., None]) -> None:
    AutoModelForCausalLM.from_config(LLAMA).save_pretrained(tmp_path, max_shard_size="1KB")
    path = tmp_path / "model.safetensors.index.json"
    table = json.loads(path.read_text("utf8"))
    assert count_stored_bytes(tmp_path, {}) == table["metadata"]["total_size"]
    break_it(table["weight_map"], tmp_path)
    path.write_text(json.dumps(table))
    with pytest.raises(CheckpointError, match=rf"does not hold {LOST}, which|{LOST} stands in two files"):
        count_stored_bytes(tmp_path, {})


def test_tied_weights_stand_in_the_files_once(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=2)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    for stored in ({}, {"lm_head.weight": model.lm_head.weight.detach().clone()}):
        change_weights(tmp_path / "model.safetensors", lambda weights, stored=stored: weights.update(stored))
        opened = load_model(AutoModelForCausalLM, tmp_path)
        assert torch.equal(opened.lm_head.weight, model.transformer.wte.weight)
    # NaN is not equal to itself, and is another fault than two values of one weight.
    change_weights(tmp_path / "model.safetensors", lambda weights: [x.fill_(torch.nan) for x in weights.values()])
    assert load_model(AutoModelForCausalLM, tmp_path).lm_head.weight.isnan().all()


@pytest.mark.parametrize("kind", ["t5", "mt5"])
def test_a_head_that_the_file_unties_is_another_weight(kind: str, tmp_path: Path) -> None:
    """As Flan-T5 and mT5 are published; their classes in transformers 5 set the key to true, and read both."""
    sizes = {"vocab_size": 11, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(kind, **sizes)).save_pretrained(tmp_path)
    head = torch.ones(11, 8)
    change_weights(tmp_path / "model.safetensors", lambda weights: weights.update({"lm_head.weight": head}))
    model = load_model(AutoModelForSeq2SeqLM, change_config(tmp_path, tie_word_embeddings=False))
    assert torch.equal(model.lm_head.weight, head) and not torch.equal(model.shared.weight, head)
    with pytest.raises(CheckpointError, match=r"it ties lm_head\.weight to shared\.weight"):
        load_model(AutoModelForSeq2SeqLM, change_config(tmp_path, tie_word_embeddings=True))


def test_masks_that_older_versions_saved_are_no_weights(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """As in the files of GPT-J 6B on the hub."""
    AutoModelForCausalLM.from_config(
        GPTJConfig(vocab_size=11, n_embd=8, n_layer=1, n_head=2, rotary_dim=2)
    ).save_pretrained(tmp_path)
    masks = {f"transformer.h.0.attn.{name}": torch.ones(1) for name in ("bias", "masked_bias")}
    change_weights(tmp_path / "model.safetensors", lambda weights: weights.update(masks))
    load_model(AutoModelForCausalLM, tmp_path)
    assert not [told for told in recwarn if told.category is ClockhandsWarning]


def test_a_head_matters_where_it_is_opened(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """A pooler does not: nothing reads it, and a model that fills in masks is saved without one."""
    config = BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    BertModel(config).save_pretrained(tmp_path / "bare")
    BertForMaskedLM(config).save_pretrained(tmp_path / "whole")
    for opener, name in ((AutoModel, "bare"), (AutoModel, "whole"), (AutoModelForMaskedLM, "whole")):
        load_model(opener, tmp_path / name)
    assert not [told for told in recwarn if told.category is ClockhandsWarning]
    with pytest.raises(CheckpointError, match=r"cls\.predictions.* are missing; it was saved without its output layer"):
        load_model(AutoModelForMaskedLM, tmp_path / "bare")


def test_sinusoids_that_a_class_makes_again_are_not_missing(tmp_path: Path) -> None:
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 1), ("ffn_dim", 8))}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    model = MarianMTModel(
        MarianConfig(vocab_size=11, d_model=8, max_position_embeddings=16, pad_token_id=0, **sizes, **heads)
    )
    model.save_pretrained(tmp_path)
    assert not any("embed_positions" in name for name in load_file(tmp_path / "model.safetensors"))
    opened = load_model(AutoModel, tmp_path)
    assert torch.equal(opened.encoder.embed_positions.weight, model.model.encoder.embed_positions.weight)


def test_the_size_is_that_of_float32_whatever_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(3, 5, dtype=torch.float16), "b": torch.zeros(7)}, path)
    assert count_stored_bytes(tmp_path, {}) == 4 * (15 + 7)
    # The causal mask that GPT-2 and Pythia were saved with for years is of whole numbers.
    save_file({"a": torch.zeros(22), "h.0.attn.bias": torch.ones(2, 2, dtype=torch.uint8)}, path)
    assert count_stored_bytes(tmp_path, {}) == 4 * (22 + 4)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CheckpointError, match="is no safetensors file, or a damaged one"):
        count_stored_bytes(tmp_path, {})


def test_whole_numbers_are_weights_only_where_the_configuration_says_how(llama: Path) -> None:
    store_projections(torch.int8)(llama)
    with pytest.raises(
        CheckpointError, match=r"up_proj\.weight as whole numbers \(I8\), and config\.json does not say"
    ):
        count_stored_bytes(llama, {})
    assert count_stored_bytes(llama, {"quantization_config": {}}) > 0


def test_a_model_needs_a_fifth_more_than_its_weights() -> None:
    check_fits(100, "x", 120)
    with pytest.raises(CheckpointError, match="x needs"):
        check_fits(100, "x", 119)
    with pytest.raises(CheckpointError, match=r"needs 8\.0 GiB .* and 4\.0 GiB of memory are free"):
        check_fits(2**33, "big", available=2**32)


def test_pickles_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"only as pickle \(pytorch_model\.bin\)"):
        list_weight_files(tmp_path, {})


@pytest.mark.parametrize("target", ["../part.safetensors", "/etc/part.safetensors", "part.bin", 3])
def test_an_index_names_safetensors_beside_it_and_nothing_else(target: Any, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": target}}))
    with pytest.raises(CheckpointError, match=r"names .* for weights; only safetensors"):
        list_weight_files(tmp_path, {})


def test_what_is_not_finite_is_named_and_what_is_large_is_not(tmp_path: Path) -> None:
    """The sum of these large numbers would be infinite, and none of them is."""
    large = torch.full((4,), torch.finfo(torch.float32).max)
    fine = {"large": large, "half": torch.full((9,), 60_000.0, dtype=torch.float16), "ids": torch.arange(3)}
    fine |= {"none": torch.zeros(0), "eight": torch.ones(2).to(torch.float8_e4m3fn), "hollow": large.to("meta")}
    refuse_not_finite(fine.items(), tmp_path)
    for value in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(CheckpointError, match="2 of 4 numbers of bad are NaN or infinite"):
            refuse_not_finite({**fine, "bad": torch.tensor([1.0, value, value, 0.0])}.items(), tmp_path)
