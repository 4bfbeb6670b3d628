"""A port that is consistently wrong is told from its reference, and the mistake is named."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clockhands.checking import against
from clockhands.checking.models.tiny import build_model, find, tiny_config
from clockhands.errors import UsageError


def model(name: str, change: Any = None) -> Any:
    build = next(each for each in find(name) if not each.variant and each.task != "masked")
    config = tiny_config(build)
    if change is not None:
        change(config)
    return build_model(config, build.task)


def test_the_same_weights_are_the_same() -> None:
    found = against.compare(model("llama"), model("llama"))
    assert found.same
    assert "the same" in found.text()


def change_base(config: Any) -> None:
    config.rope_parameters["rope_theta"] = 500000.0


def change_base_of_one_kind(config: Any) -> None:
    config.rope_parameters["full_attention"]["rope_theta"] = 10000.0


def change_share(config: Any) -> None:
    config.rope_parameters["partial_rotary_factor"] = 1.0


def change_buckets(config: Any) -> None:
    config.relative_attention_max_distance = 64


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("llama", change_base, "the model has base 500,000, not 10,000"),
        (
            "gemma3_text",
            change_base_of_one_kind,
            "in its full_attention layers the model has base 10,000, not 1,000,000",
        ),
        ("phi", change_share, "the model rotates 16 of 16 channels, the reference 8"),
        ("t5", change_buckets, "the model has a maximum distance of 64, not 32"),
    ],
)
def test_what_a_configuration_changes_is_named_with_the_layer_where_they_part(
    name: str, change: Any, said: str
) -> None:
    found = against.compare(model(name, change), model(name))
    assert found.explanation == said
    assert name != "llama" or (found.layer, found.position) == (1, 1)


HALVES = torch.cat([torch.arange(0, 16, 2), torch.arange(1, 16, 2)])


@pytest.mark.parametrize(
    ("order", "named"),
    [
        (HALVES, "rotates neighbouring pairs, the reference halves"),
        (HALVES.argsort(), "rotates queries and keys whose channels stand in another order"),
    ],
    ids=["to", "fro"],
)
def test_the_layout_of_pairs_is_told_in_both_directions(order: Tensor, named: str) -> None:
    port = model("llama")

    def laid_out(self: Any, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight.unflatten(0, (-1, 16))[:, order].flatten(0, 1))

    for layer in port.model.layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            projection.forward = laid_out.__get__(projection)
    assert against.compare(port, model("llama")).explanation == f"the model {named}"


def test_buckets_that_count_in_both_directions_are_named() -> None:
    port = model("t5")
    for module in port.decoder.modules():
        if hasattr(module, "_relative_position_bucket"):
            module.is_decoder = False
    assert against.compare(port, model("t5")).explanation == "the decoder has buckets counted in both directions"


@pytest.mark.parametrize(
    ("name", "sides", "whose"),
    [
        ("opt:causal", ("decoder",), "the model"),
        ("bart:seq2seq", ("encoder", "decoder"), "the model"),
        ("bart:seq2seq", ("encoder",), "the encoder"),
        ("bart:seq2seq", ("decoder",), "the decoder"),
    ],
)
def test_a_port_without_the_offset_of_its_table_is_named(name: str, sides: tuple[str, ...], whose: str) -> None:
    """OPT and BART keep position p in row p + 2; who drops the offset reads rows 0 and 1, which no position has."""
    port = model(name)
    for side in sides:
        table = getattr(port.model, side).embed_positions.weight
        table.data = torch.cat([table.data[:2], table.data[:-2]])
    said = against.compare(port, model(name)).explanation
    assert said == f"{whose} gives position p the reference's vector of p − 2"


def test_a_scaling_left_out_is_named() -> None:
    (build,) = find("llama+yarn:causal")
    reference = build_model(tiny_config(build), "causal")
    assert "leaves out the scaling 'yarn'" in against.compare(model("llama"), reference).explanation


def test_what_nothing_fitted_explains_is_said_to_be_so() -> None:
    port = model("llama")
    port.lm_head.weight.data *= 1.5
    found = against.compare(port, model("llama"))
    assert found.explanation == ""
    assert "Nothing that was fitted explains it" in found.text()


def test_other_vocabularies_are_refused() -> None:
    other = copy.deepcopy(model("gpt2"))
    other.resize_token_embeddings(170)
    with pytest.raises(UsageError, match="has 170 tokens, LlamaForCausalLM 160: only models of the same vocabulary"):
        against.compare(other, model("llama"))
    with pytest.raises(UsageError, match=r"returns .* LlamaForCausalLM 160: one was saved without its output layer"):
        against.compare(model("llama").model, model("llama"))


def test_the_reference_keeps_its_weights_whatever_is_tried() -> None:
    reference = model("llama")
    before = copy.deepcopy(reference.state_dict())
    port = model("llama")
    port.lm_head.weight.data *= 1.5
    against.compare(port, reference)
    assert all(torch.equal(tensor, before[name]) for name, tensor in reference.state_dict().items())


def test_trust_is_about_opening_a_folder_and_refused_for_models(tmp_path: Path) -> None:
    """With a folder that has a configuration it means something, shrunk or not; between two models nothing."""
    made = model("llama")
    made.save_pretrained(tmp_path / "llama")
    assert against.compare(tmp_path / "llama", tmp_path / "llama", tiny=True, trust_remote_code=True).same
    assert against.compare(tmp_path / "llama", made, trust_remote_code=True).same
    with pytest.raises(UsageError, match="trust_remote_code"):
        against.compare(made, made, trust_remote_code=True)


def test_divergence_and_agreement_are_those_of_the_definition() -> None:
    """Two tokens, worked out by hand: p = (1/2, 1/2) and (3/4, 1/4) against q = (1/4, 3/4) and (3/4, 1/4)."""
    wanted = torch.tensor([[[0.5, 0.5], [0.75, 0.25]]]).log()
    actual = torch.tensor([[[0.25, 0.75], [0.75, 0.25]]]).log() + 3.0  # a constant changes no distribution
    told = against.measure_divergence(actual, wanted)
    first = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert told["kl_mean"] == pytest.approx(first / 2) and told["kl_p99"] == pytest.approx(0.99 * first)
    moved = against.Deviation("m", "r", 1.0, 0, None, "", (), **told).text()
    assert f"KL divergence from the reference {first / 2:.2g} nats on average" in moved
