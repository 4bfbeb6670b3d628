"""A model as data for the page: its numbers are those of the model, and it is refused where it cannot run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clockhands.errors import UsageError
from clockhands.exploring.model_data import (
    ExplorerModel,
    describe_model,
    describe_order,
    describe_scheme,
    hold_packed,
    list_tensors,
    pack_tensors,
    record_model,
)
from clockhands.exploring.page import make_page, prepare_model
from clockhands.inspection import Subject
from clockhands.runs import Run
from tests.exploring.models import PAIRS, make_run
from tests.inspection.tiny import tiny
from tests.inspection.words import make_tokenizer


def test_the_data_are_those_of_the_model(tmp_path: Path) -> None:
    run = make_run(tmp_path, norm="pre", num_kv_heads=1, encoder="t5", decoder={"scheme": "t5", "logit_scale": "none"})
    model = describe_model(run, "one", "One", "three sentences", PAIRS)
    data = json.loads(json.dumps(model.data))
    assert (data["id"], data["label"], data["task"]) == ("one", "One", "three sentences")
    assert data["config"]["parameters"] == sum(parameter.numel() for parameter in run.model.parameters())
    rules = data["rules"]
    assert (rules["preNorm"], rules["finalNorm"], rules["keyHeads"]) == (True, True, 1)
    assert rules["attentionScale"] == {"encoder": 0.5, "decoder": 1.0, "cross": 0.5}
    assert rules["tokenScale"]["encoder"] == pytest.approx(8**0.5)
    assert (rules["startId"], rules["endIds"]) == (1, [2])
    assert data["heldOut"][0] == {"source": "Tom bit a dog", "target": "Tom mordis hundon"}
    assert data["targetTokens"] is None and len(data["tokens"]) == data["config"]["vocabulary"]
    assert data["weights"] == {"element": "explorer-weights-one", "type": "float16"}


def test_what_cannot_run_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder="fire", decoder="fire")
    with pytest.raises(UsageError, match=r"encoder.scheme = 'fire'"):
        describe_model(run, "one", "One", "", PAIRS)


def read_bits(digits: str, columns: int, rows: int) -> list[list[int]]:
    """Read a table of bits from hexadecimal digits, as the page does: the first bit of a digit is its highest."""
    bits = [int(bit) for digit in digits for bit in f"{int(digit, 16):04b}"]
    return [bits[row * columns : (row + 1) * columns] for row in range(rows)]


def test_two_texts_are_described_as_the_page_s_own_test_writes_them_by_hand() -> None:
    described = describe_order([[0, 1, 2], [0, 2], []], 4, least=0)
    assert described == {"shortest": 2, "longest": 3, "next": "61020800", "before": "6200"}


def test_pairs_are_those_of_a_loop_over_all_texts() -> None:
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 6, rng.integers(1, 5)).tolist() for _ in range(4)]
    follows, precedes = np.zeros((8, 8), int), np.zeros((7, 7), int)
    for text in texts:
        for first, second in zip([7, *text], [*text, 7], strict=True):
            follows[first, second] = 1
        for second in range(len(text)):
            for first in range(second):
                precedes[text[first], text[second]] = 1
    described = describe_order(texts, 7, least=0)
    assert read_bits(described["next"], 8, 8) == follows.tolist()
    assert read_bits(described["before"], 7, 7) == precedes.tolist()


def test_rare_tokens_that_never_met_tell_nothing() -> None:
    texts = [[0, 1]] * 40 + [[1, 0]] * 40 + [[2, 0]] * 20
    before = read_bits(describe_order(texts, 4)["before"], 4, 4)
    # By chance 0 and 1 are together in 100 · 80 / 100 texts, 1 and 2 in 80 · 20 / 100, which is fewer than 20.
    assert before == [[0, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("text", ["Tom bit a dog", "the old queen saw Eva"])
def test_a_page_holds_what_the_training_of_its_model_showed(translator: Run, text: str) -> None:
    data = prepare_model(translator, "roles", "who bit whom").data
    size = len(data["tokens"])
    ids = translator.tokenizers.source(text, add_special_tokens=False)["input_ids"]
    follows = read_bits(data["trained"]["next"], size + 1, size + 1)
    seen = [follows[first][second] for first, second in zip([size, *ids], [*ids, size], strict=True)]
    # This translator was trained without adjectives: "old" never stood in a sentence that it read.
    assert all(seen) == (text == "Tom bit a dog")
    assert (data["trained"]["shortest"], data["trained"]["longest"]) == (3, 5)


def test_options_have_their_values_and_hands_their_frequencies(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder={"scheme": "sinusoidal", "base": 16.0}, decoder={"scheme": "rope", "base": 16.0})
    told = describe_scheme(run, "encoder")
    assert (told["name"], told["combine"], told["amplitude"]) == ("sinusoidal", "add", 1.0)
    assert told["options"]["layout"] == "interleaved" and told["options"]["base"] == 16.0
    assert told["frequencies"] == pytest.approx([1, 0.5, 0.25, 0.125])
    assert describe_scheme(run, "decoder")["frequencies"] == pytest.approx([1, 0.25])


def test_what_was_learned_is_a_number(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        encoder={"scheme": "sinusoidal", "learned_amplitude": True},
        decoder={"scheme": "rope", "learned": True},
    )
    with torch.no_grad():
        run.model.transformer.encoder.schemes[0].amplitude.fill_(0.5)
        run.model.transformer.decoder.schemes[0].alpha_F.fill_(0.5)
    assert describe_scheme(run, "encoder")["amplitude"] == 0.5
    assert describe_scheme(run, "decoder")["factors"] == pytest.approx([1.6487213, 1.6487213])


def test_forms_that_follow_from_the_side_are_resolved(tmp_path: Path) -> None:
    run = make_run(tmp_path / "alibi", encoder="alibi", decoder="alibi")
    assert describe_scheme(run, "encoder")["options"]["form"] == "symmetric"
    told = describe_scheme(run, "decoder")
    assert (told["options"]["form"], told["slopes"]) == ("causal", [[0.0625, 0.00390625]])
    run = make_run(tmp_path / "t5", encoder="t5", decoder="t5")
    assert describe_scheme(run, "encoder")["options"]["bidirectional"] is True
    told = describe_scheme(run, "decoder")
    assert told["options"]["bidirectional"] is False
    assert told["starts"] == run.model.transformer.decoder.schemes[0].starts_N.tolist()


def test_every_tensor_stands_at_its_place(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder="learned", decoder="t5", token_scale="learned")
    packed, places = pack_tensors(list_tensors(run), "float32")
    numbers = np.frombuffer(packed, "<f4")
    state = run.model.transformer.state_dict()
    tables = {"encoder.table": "encoder.schemes.0.table_LP", "decoder.table": "decoder.schemes.0.table_HN"}
    for name, place in places.items():
        tensor = state[tables.get(name, name)]
        start = place["offset"]
        assert place["shape"] == list(tensor.shape)
        assert np.array_equal(numbers[start : start + tensor.numel()], tensor.flatten().numpy())
    assert {"encoder.table", "decoder.table", "output.weight"} <= set(places)


def test_tied_matrices_share_a_place_and_half_precision_rounds(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    packed, places = pack_tensors(list_tensors(run))
    assert places["output.weight"] == places["encoder.input.tokens.weight"] == places["decoder.input.tokens.weight"]
    weight = run.model.transformer.output.weight
    start = places["output.weight"]["offset"]
    ours = np.frombuffer(packed, "<f2")[start : start + weight.numel()]
    assert np.array_equal(ours, weight.detach().flatten().to(torch.float16).numpy())
    assert len(packed) == 2 * sum(parameter.numel() for parameter in run.model.parameters())


def test_a_run_holds_what_is_packed_inside_the_block_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder="learned", decoder="t5")
    trained = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    half, _ = pack_tensors(list_tensors(run))
    with hold_packed(run):
        whole, places = pack_tensors(list_tensors(run), "float32")
        rounded = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    assert np.array_equal(np.frombuffer(half, "<f2").astype("<f4"), np.frombuffer(whole, "<f4"))
    assert len(places) > 20
    assert any(not torch.equal(rounded[name], tensor) for name, tensor in trained.items())
    assert all(torch.equal(run.model.state_dict()[name], tensor) for name, tensor in trained.items())


TEXT = "Tom bit a dog"


def record(name: str, *texts: str) -> tuple[Any, ExplorerModel]:
    model = tiny(name)
    return model, record_model(Subject.of(model, make_tokenizer()), name, name, texts, "Why not.")


def test_a_learned_table_and_the_attention_of_a_sentence_are_the_models(tmp_path: Any) -> None:
    model, recorded = record("gpt2", TEXT)
    assert not recorded.is_live and recorded.data["scheme"]["name"] == "learned"
    assert np.allclose(recorded.read_array("table"), model.wpe.weight.detach(), atol=1e-2)
    ids = torch.tensor([[token["id"] for token in recorded.data["sentences"][0]["tokens"]]])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = torch.stack(model(ids, output_attentions=True).attentions)[:, 0]
    assert np.allclose(recorded.read_array("sentence.0"), weights, atol=1e-3)
    page = make_page([recorded], "clockhands explore x")
    told = page[: page.index('<script type="application/json"')]
    assert "Why not." in told and "a learned vector per position is added" in told.lower() and TEXT in told


def test_rotation_has_its_frequencies_and_their_base() -> None:
    model, recorded = record("llama")
    scheme = recorded.data["scheme"]
    width = model.config.hidden_size // model.config.num_attention_heads
    assert scheme["name"] == "rope" and scheme["options"]["base"] == pytest.approx(10_000, rel=1e-3)
    assert scheme["frequencies"] == pytest.approx([10_000 ** (-2 * pair / width) for pair in range(width // 2)])
    assert "base" not in record("llama-yarn")[1].data["scheme"]["options"]


def test_computed_sinusoids_are_hands() -> None:
    model, recorded = record("marian")
    scheme, half = recorded.data["scheme"], model.config.d_model // 2
    assert (scheme["name"], scheme["options"]["layout"]) == ("sinusoidal", "half")
    assert scheme["frequencies"] == pytest.approx([10_000 ** (-pair / half) for pair in range(half)], rel=1e-3)


@pytest.mark.parametrize("name", ["bloom", "t5"])
def test_a_bias_is_what_the_model_adds_by_distance(name: str) -> None:
    model, recorded = record(name, TEXT)
    kernels = recorded.read_array("kernels")
    reach = (kernels.shape[-1] - 1) // 2
    heads, distances = kernels.shape[1], np.arange(-reach, reach + 1)
    if name == "bloom":
        slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
        expected = -slopes[:, None] * np.where(distances > 0, distances, 0)  # keys after the query are masked
    else:
        attention = model.encoder.block[0].layer[0].SelfAttention
        bias_HST = attention.compute_bias(reach + 1, reach + 1)[0].detach().numpy()
        expected = np.stack([bias_HST[:, max(d, 0), max(-d, 0)] - bias_HST[:, 0, 0] for d in distances], axis=1)
    assert recorded.data["scheme"]["name"] == "bias"
    assert np.allclose(kernels, expected, atol=2e-2)


def test_what_cannot_be_shown_is_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match=r'nothing to show of .*; give sentences \(--text "\.\.\."\) to record'):
        record("bloom")
    with pytest.raises(UsageError, match=r"--text is empty"):
        record("gpt2", " ")
