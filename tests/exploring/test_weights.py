"""The packed weights are those of the model, and tied ones stand there once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from clockhands.exploring.weights import hold_packed, pack_weights
from tests.exploring.models import make_run


def test_every_tensor_stands_at_its_place(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder="learned", decoder="t5", token_scale="learned")
    packed, places = pack_weights(run, "float32")
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
    packed, places = pack_weights(run)
    assert places["output.weight"] == places["encoder.input.tokens.weight"] == places["decoder.input.tokens.weight"]
    weight = run.model.transformer.output.weight
    start = places["output.weight"]["offset"]
    ours = np.frombuffer(packed, "<f2")[start : start + weight.numel()]
    assert np.array_equal(ours, weight.detach().flatten().to(torch.float16).numpy())
    assert len(packed) == 2 * sum(parameter.numel() for parameter in run.model.parameters())


def test_a_run_holds_what_is_packed_inside_the_block_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder="learned", decoder="t5")
    trained = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    half, _ = pack_weights(run)
    with hold_packed(run):
        whole, places = pack_weights(run, "float32")
        rounded = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    assert np.array_equal(np.frombuffer(half, "<f2").astype("<f4"), np.frombuffer(whole, "<f4"))
    assert len(places) > 20
    assert any(not torch.equal(rounded[name], tensor) for name, tensor in trained.items())
    assert all(torch.equal(run.model.state_dict()[name], tensor) for name, tensor in trained.items())
