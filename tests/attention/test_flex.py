"""FlexAttention: its causal block mask is PyTorch's own, and it serves where a GPU can compute the request."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from clockhands import positions
from clockhands.attention import attend_reference, flex
from clockhands.attention.request import make_request
from clockhands.schemes import Alibi, Scheme, Window

FIELDS = (
    "seq_lengths", "kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks", "kv_indices",
    "full_kv_indices", "q_indices", "full_q_indices", "BLOCK_SIZE",
)  # fmt: skip


@pytest.mark.parametrize(
    ("queries", "keys"), [(128, 128), (640, 640), (1, 1), (130, 130), (500, 500), (128, 300), (200, 457), (384, 512)]
)
def test_the_causal_block_mask_is_that_of_pytorch(queries: int, keys: int) -> None:
    made = flex.make_causal_block_mask(queries, keys, torch.device("cpu"))
    theirs = create_block_mask(lambda b, h, i, j: j <= i + keys - queries, None, None, queries, keys, device="cpu")
    for field in FIELDS:
        mine, other = getattr(made, field), getattr(theirs, field)
        same = torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other
        assert same, f"{field}: {mine} and {other}"


def test_a_mask_made_in_inference_mode_serves_training_too() -> None:
    flex.make_causal_block_mask.cache_clear()
    with torch.inference_mode():
        mask = flex.make_causal_block_mask(256, 256, torch.device("cpu"))
    assert not mask.kv_indices.is_inference()
    assert flex.make_causal_block_mask(256, 256, torch.device("cpu")) is mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(128, 128), (70, 200)])
def test_the_kernel_is_the_reference(masked: bool, queries: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the compiler, which takes a minute; ``test_compiled`` has it."""
    monkeypatch.setattr(flex, "_compile_flex_attention", lambda: flex_attention)
    check(Alibi(4), queries, keys, masked)


@pytest.mark.slow
def test_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    check(Alibi(4), 128, 128, False)


def check(scheme: Scheme, queries: int, keys: int, masked: bool) -> None:
    """Compare the kernel with the reference, on a CPU."""
    torch.manual_seed(0)
    kpos, mask = positions.count_up(2, keys), None
    if masked:
        mask = torch.ones(2, 1, 1, keys, dtype=torch.bool)
        mask[0, ..., -9:] = False
    q, k, v = torch.randn(2, 4, queries, 32), *torch.randn(2, 2, 4, keys, 32).unbind(0)
    arguments = (scheme, q, k, v, kpos[:, keys - queries :], kpos, mask)
    got = flex.compute(make_request(*arguments, causal=True))
    torch.testing.assert_close(got, attend_reference(*arguments, causal=True).out_BHSK, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "served"),
    [
        ({}, True), ({"pos": torch.float32}, False), ({"dtype": torch.float64}, False), ({"length": 512}, False),
        ({"dropout": 0.1}, False), ({"device": "cpu"}, False),
    ],
)  # fmt: skip
def test_it_serves_what_a_gpu_can_compute(change: dict[str, Any], served: bool) -> None:
    """Tensors without memory stand for those of a GPU. Real-valued positions have no table of distances."""
    options = {"pos": torch.long, "dtype": torch.bfloat16, "length": 1024, "dropout": 0.0, "device": "cuda"} | change
    with FakeTensorMode():
        q = torch.empty(1, 4, options["length"], 32, dtype=options["dtype"], device=options["device"])
        pos = torch.empty(1, options["length"], dtype=options["pos"], device=options["device"])
        scheme = Window(4)
        request = make_request(scheme, q, q, q, pos, pos, causal=True, dropout=options["dropout"])
    assert flex.serves(request) is served
