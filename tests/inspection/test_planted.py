"""Each measure must report what was planted, and nothing where nothing was."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from clockhands.inspection.estimators.probes import CrossValidation
from clockhands.inspection.measures.directions import _compute_overlap
from clockhands.inspection.measures.heads import _bootstrap_median
from clockhands.inspection.measures.survival import _probe_positions, estimate_position_share, probe_layers
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.interventions import ANOTHER_TEXT, MEAN_ROW, PERMUTED, intervene
from clockhands.inspection.reading.logit_split import (
    PARTS,
    TERMS,
    LogitSplit,
    centre_logits,
    compute_positional_share,
    split_by_batch,
    split_logits,
)
from clockhands.models.subject import Subject

from . import planted
from .measures.readings import with_tables
from .planted import HALF, LENGTH, answer, clock, heads_of, table_answer


@cache
def _previous() -> tuple[Subject, Capture]:
    subject = Subject.of(planted.previous_token(), name="previous")
    return subject, capture(subject.model, subject.forward, planted.ids())


@cache
def _blind() -> tuple[Subject, Capture]:
    """Two layers of random attention over words, no position at all."""
    subject = Subject.of(planted.bert(layers=2), name="blind")
    with torch.no_grad():
        for weight in subject.model.encoder.parameters():
            if weight.ndim == 2:
                weight.normal_(0, 0.3)
    return subject, capture(subject.model, subject.forward, planted.ids())


def _split(recorded: Capture, layer: int = 0) -> LogitSplit:
    return split_logits(recorded.layers[layer], recorded.ordinary_T)


def test_a_head_that_looks_one_back_is_named_and_is_positional() -> None:
    _, recorded = _previous()
    found = heads_of(recorded)
    assert found.name_head(0) == "previous token"
    assert found.name_head(1) == "itself", "the only word sure to equal a random word is itself"
    assert float(found.get_attention_at(-1)[0]) > 0.95
    assert float(found.by_position_H[0]) > 0.98
    assert float(found.distance_H[0]) == pytest.approx(1.0, abs=0.2)
    shares = _split(recorded).compute_head_shares()
    assert float(shares[0, TERMS.index("position–position")]) > 0.98
    assert float(shares[1, TERMS.index("content–content")]) > 0.98


def test_permuting_the_words_matters_only_where_position_is_heard() -> None:
    subject, recorded = _blind()
    found = intervene(subject, recorded)
    for name in (PERMUTED, MEAN_ROW):
        assert found[name].token_change < 1e-9 and found[name].mean_state_change < 1e-9  # type: ignore[operator]
    assert found[ANOTHER_TEXT].mean_state_change == pytest.approx(1.0, abs=0.1)
    assert found[ANOTHER_TEXT].token_change == pytest.approx(1.0, abs=0.1)


def test_replacing_the_position_rows_changes_the_model_with_a_positional_head() -> None:
    subject, recorded = _previous()
    found = intervene(subject, recorded)
    assert found[MEAN_ROW].mean_state_change > 0.01  # type: ignore[operator]
    assert torch.equal(subject.read_tables().positions_ND[:, :HALF], clock()), "the table is put back"  # type: ignore[union-attr]


def test_no_position_reads_as_no_position() -> None:
    subject, recorded = _blind()
    assert answer("loudness", subject, recorded).value == pytest.approx(0.0, abs=1e-6)
    assert abs(estimate_position_share(recorded.hidden[-1])[0]) < 0.01
    shares = _split(recorded, 1).compute_layer_shares()
    assert abs(compute_positional_share(shares)) < 0.02
    found = probe_layers(subject, recorded)
    assert max(found.position_shares) < 3 / LENGTH
    statistics = heads_of(recorded, 1)
    assert float(statistics.by_position_H.abs().max()) < 0.05
    assert table_answer("table.similarity", subject).light == "skip"


def test_without_crossfit_noise_would_pass_as_position() -> None:
    """The reason for using the other half of the texts, shown on the model without position."""
    _, recorded = _blind()
    layer = recorded.layers[1]
    totals = dict.fromkeys((True, False), 0.0)
    variance = dict.fromkeys((True, False), 0.0)
    for crossfit in totals:
        for _, batch in split_by_batch(layer, crossfit=crossfit):
            logits = centre_logits(batch.real.logits_BHST, batch.real.mask_BHST)
            for query, key in ((a, b) for a in PARTS for b in PARTS if "position" in (a, b)):
                totals[crossfit] += float((batch.compute_term(f"{query}–{key}") * logits).sum())
            variance[crossfit] += float(logits.square().sum())
    assert abs(totals[True] / variance[True]) < 0.01
    assert totals[False] / variance[False] > 0.02


def test_the_null_of_the_overlap_is_that_of_random_rotations() -> None:
    generator = torch.Generator().manual_seed(0)
    spectra = [torch.diag(torch.rand(24, generator=generator, dtype=torch.float64) ** 3) for _ in range(2)]
    _, mean, spread = _compute_overlap(*spectra)
    draws = []
    for _ in range(2000):
        turn = torch.linalg.qr(torch.randn(24, 24, generator=generator, dtype=torch.float64)).Q
        draws.append(_compute_overlap(spectra[0], turn @ spectra[1] @ turn.T)[0])
    drawn = torch.tensor(draws)
    assert mean == pytest.approx(float(drawn.mean()), abs=4 * spread / 2000**0.5)
    assert spread == pytest.approx(float(drawn.std()), rel=0.08)


@pytest.mark.parametrize("seed", range(8))
def test_the_intervals_cover_what_is_true(seed: int) -> None:
    """The share of planted positions, and the distance of a head, against the truth and a bootstrap."""
    generator = torch.Generator().manual_seed(seed)
    places, rest = torch.randn(LENGTH, 16, generator=generator), torch.randn(40, LENGTH, 16, generator=generator)
    low, high = estimate_position_share(places + rest)[1]
    true = float(places.var(0, correction=0).sum()) / (float(places.var(0, correction=0).sum()) + 16)
    assert low - (high - low) / 2 < true < high + (high - low) / 2
    picks = torch.randint(40, (100, 40), generator=generator)
    drawn = torch.tensor([estimate_position_share((places + rest)[rows])[0] for rows in picks])
    assert high - low == pytest.approx(3.92 * float(drawn.std()), rel=0.5)
    distances = 5 + torch.randn(60, 4, generator=generator, dtype=torch.float64)
    low, high = _bootstrap_median(distances)
    assert low < 5 + 2 / 60**0.5 and high > 5 - 2 / 60**0.5 and 0.1 < high - low < 0.6


@pytest.mark.parametrize("seed", range(8))
def test_nulls_stay_null(seed: int) -> None:
    """Independent random tables and states: every measure must see nothing, whatever the seed."""
    generator = torch.Generator().manual_seed(seed)
    words, places = torch.randn(planted.VOCAB, 64, generator=generator), torch.randn(LENGTH, 64, generator=generator)
    subject, recorded = with_tables(words, places)
    assert abs(answer("directions", subject, recorded).details["z"]) < 3.5
    similarity = table_answer("table.similarity", subject)
    assert similarity.value == pytest.approx(similarity.references[0].value, abs=0.15)
    assert table_answer("table.hands", subject).value == 0
    assert table_answer("table.shift", subject).light == "info"
    states = torch.randn(24, LENGTH, 16, generator=generator)
    assert abs(estimate_position_share(states)[0]) < 0.01
    assert float(_probe_positions(states, CrossValidation.draw(torch.arange(24))).mean()) < 4 / LENGTH


def test_positions_planted_in_the_states_are_read_back() -> None:
    subject, recorded = _previous()
    found = probe_layers(subject, recorded)
    assert found.position_shares[0] > 0.95
    assert found.token_shares[0] > 0.95
    assert found.permuted_share < 4 / LENGTH
