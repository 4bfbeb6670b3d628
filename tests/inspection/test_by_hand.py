"""The ten figures that people quote, each computed by hand in a few lines of plain PyTorch beside it.

A page names the file of the calculation under "How it was measured".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clockhands.data import open_corpus
from clockhands.data.population import Listed
from clockhands.findings import Finding
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.survival import _draw_splits
from clockhands.inspection.reading.interventions import MOST_TEXTS
from clockhands.model import Transformer, TransformerConfig

from . import planted, planted_gpt2
from .by_hand import (
    ceiling,
    four_terms,
    hands,
    loudness,
    overlap,
    permutation,
    position_share,
    probe,
    residual_removed,
    shift,
)
from .measures.readings import random_rows, with_tables
from .measures.tables import learned, mixed, sinusoid

FOLDER = Path(__file__).parent / "by_hand"


def column(finding: Finding, name: str) -> list[Any]:
    """One column of the table of a finding."""
    return [row[finding.table.columns.index(name)] for row in finding.table.rows]


@pytest.fixture(scope="module")
def bert() -> tuple[torch.Tensor, Any, Finding]:
    """A BERT's input of its first layer, that layer's attention, and the split of its logits on the page."""
    model = planted.previous_token(1.0)
    with torch.no_grad():
        x_NTD = model.embeddings(planted.ids()).double()
    finding = MEASURES["logits.layers"].run(planted_gpt2.read(model, planted.ids()))
    return x_NTD, model.double().requires_grad_(False).encoder.layer[0].attention.self, finding


def test_the_share_of_position_in_the_logits(bert: tuple[torch.Tensor, Any, Finding]) -> None:
    x_NTD, attention, finding = bert
    by_hand = position_share.compute(x_NTD, attention.query, attention.key, attention.num_attention_heads)
    assert 0.05 < by_hand < 0.95
    assert finding.value == pytest.approx(by_hand, abs=1e-5)


def test_the_four_terms(bert: tuple[torch.Tensor, Any, Finding]) -> None:
    x_NTD, attention, finding = bert
    terms = four_terms.compute(x_NTD, attention.query, attention.key, attention.num_attention_heads)
    assert sum(terms.values()) == pytest.approx(1)
    for name, by_hand in terms.items():
        assert column(finding, name)[0] == pytest.approx(by_hand, abs=1e-5)


def test_loudness_and_variation_and_overlap() -> None:
    words, positions = 2 * random_rows(planted.VOCAB), random_rows(planted.LENGTH, 1)
    words[:, :8] += 3  # a mean that all words share, and directions in which they vary more
    words[:, 8:16] *= 4
    subject, recorded = with_tables(words, positions)
    ids_NT = recorded.ids_NT[:, 1:]  # position 0 is left out
    rows = words[ids_NT.flatten()], positions[1 : planted.LENGTH]
    found = planted.answer("loudness", subject, recorded).details
    assert (found["length"], found["variation"]) == pytest.approx(loudness.compute(*rows, centres=True))
    assert found["length"] != pytest.approx(found["variation"], rel=0.01), "two words for two numbers"
    assert planted.answer("directions", subject, recorded).value == pytest.approx(overlap.compute(*rows), abs=1e-6)


def test_hands() -> None:
    rows = sinusoid(128, 16)
    finding = planted.table_answer("table.hands", learned(rows))
    assert column(finding, "tokens per turn") == pytest.approx(hands.compute(rows[1:].double()), rel=1e-4)


@pytest.mark.parametrize("k", [1, 4])
def test_shift_by_k(k: int) -> None:
    rows = mixed(128, 64, [5.0, 9.0, 31.0])
    finding = planted.table_answer("table.shift", learned(rows))
    by_step = dict(zip(column(finding, "step"), column(finding, "rotation"), strict=True))
    assert by_step[k] == pytest.approx(shift.compute(rows[1:].double(), k), rel=1e-6)


def test_read_back_by_a_probe_with_and_without_residuals() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": planted.VOCAB, "d_model": 32, "num_heads": 2, "d_ff": 32}
    model = Transformer(TransformerConfig(kind="encoder", encoder_layers=1, **sizes)).eval()
    subject, recorded = planted.subject_of(model)
    finding = planted.answer("survival", subject, recorded)
    splits = [*_draw_splits(recorded)]
    for layer in (0, 1):
        share = probe.compute(recorded.hidden[layer][:, recorded.measured_T], splits)
        assert column(finding, "position")[layer] == pytest.approx(share, abs=0.01)
    assert model.encoder is not None
    with torch.no_grad():
        states = residual_removed.compute(recorded.hidden[0], model.encoder.blocks[0], 2)
    share = probe.compute(states[:, recorded.measured_T], splits)
    assert column(finding, "position, no residuals")[1] == pytest.approx(share, abs=0.01)
    assert share < column(finding, "position")[1] - 0.05, "or the residuals would not matter"


def test_order_by_permutation() -> None:
    subject, recorded = planted.subject_of(planted.copying())
    ids_NT = recorded.ids_NT[:MOST_TEXTS]
    draw = torch.Generator().manual_seed(0)
    order_NT = torch.stack([torch.randperm(planted.LENGTH, generator=draw) for _ in ids_NT])
    by_hand = permutation.compute(lambda ids: subject.forward(ids)[-1], ids_NT, order_NT)
    assert planted.answer("cause.tokens", subject, recorded).value == pytest.approx(by_hand, rel=1e-5)


def test_the_order_blind_ceiling() -> None:
    pairs = open_corpus("roles").pairs("test")[:400]
    by_hand = ceiling.compute([(pair.source.split(), pair.target) for pair in pairs])
    number: dict[tuple[str, ...], int] = {}

    def bags(texts: Sequence[str]) -> Any:
        keys = (tuple(sorted(text.split())) for text in texts)
        return np.array([number.setdefault(key, len(number)) for key in keys], np.uint64)

    assert Listed(pairs, "pairs").measure(bags).share == by_hand < 1


def test_each_calculation_fits_a_screen_and_is_named_on_the_page() -> None:
    files = {path.stem: path for path in FOLDER.glob("*.py") if path.stem != "__init__"}
    assert len(files) == 10
    for path in files.values():
        function = path.read_text("utf8").split("\ndef compute(")[1]
        assert len(function.splitlines()) <= 25, path.name
        assert "clockhands" not in path.read_text("utf8"), "plain PyTorch"
    named = {name for measure in MEASURES.values() for name in measure.by_hand}
    assert named == files.keys() - {"ceiling"}, "the ceiling stands on the tour's page"
    finding = planted.table_answer("table.hands", learned(sinusoid(64, 8)))
    assert finding.details["by hand"] == "tests/inspection/by_hand/hands.py"
