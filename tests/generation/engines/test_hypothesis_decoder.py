"""The three decoders of hypotheses: which one serves a scheme, and the numbers of their rows."""

from __future__ import annotations

import pytest
import torch

from clockhands.generation.engines.hypothesis_decoder import (
    SeparateCacheDecoder,
    SharedCacheDecoder,
    UncachedDecoder,
    expand_rows,
    flatten_parents,
    make_hypothesis_decoder,
)
from clockhands.model import TokenBatch
from clockhands.model.lean import LeanDecoder
from tests.generation.engines.test_clockhands import sources, writer


@pytest.mark.parametrize(
    ("scheme", "beam", "way"),
    [
        ("sinusoidal", 4, SharedCacheDecoder),
        ("rope", 4, SharedCacheDecoder),
        ("alibi", 4, SharedCacheDecoder),
        ("cope", 4, SeparateCacheDecoder),
        ("cope", 1, SharedCacheDecoder),
        ({"scheme": "index", "normalise": "length"}, 1, UncachedDecoder),
    ],
)
def test_the_way_follows_from_what_a_scheme_declares(scheme: str | dict[str, object], beam: int, way: type) -> None:
    core = writer(scheme, encoder="none").model
    ids_BT, mask_BT = sources()
    assert type(make_hypothesis_decoder(LeanDecoder(core), core.encode(TokenBatch(ids_BT, mask_BT)), beam)) is way


def test_a_cross_scheme_that_depends_on_the_length_is_read_without_a_cache() -> None:
    by_length = {"scheme": "rope", "spectrum": "dynamic", "factor": 2.0, "original_length": 3}
    made = writer("rope", cross=by_length).transformer
    ids_BT, mask_BT = sources()
    source = made.encode(TokenBatch(ids_BT, mask_BT))
    assert isinstance(make_hypothesis_decoder(LeanDecoder(made), source, 1), UncachedDecoder)


def test_rows_are_numbered_source_by_source() -> None:
    assert flatten_parents(torch.tensor([[0, 0, 2], [1, 0, 2]])).tolist() == [0, 0, 2, 4, 3, 5]
    assert expand_rows(torch.tensor([0, 2]), 3).tolist() == [0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("scheme", ["rope", "cope"])
def test_every_class_gives_the_states_of_the_whole_text(scheme: str) -> None:
    """Also after hypotheses have changed places and a source was dropped: read anew, each text has the same states."""
    model = writer(scheme, encoder="none").model
    ids_BT, mask_BT = sources(3)
    tokens_BW = torch.tensor([[5, 6], [7, 8], [9, 10]])
    parents_BW = torch.tensor([[1, 0], [0, 0], [1, 1]])
    kept = torch.tensor([0, 2])
    with torch.no_grad():
        source = model.encode(TokenBatch(ids_BT, mask_BT))
        decoder = make_hypothesis_decoder(LeanDecoder(model), source, 2)
        whole = UncachedDecoder(LeanDecoder(model), source, 2)
        for search in (decoder, whole):
            search.step(tokens_BW, None)
            search.step(tokens_BW + 20, parents_BW)
            search.select(kept)
        torch.testing.assert_close(
            decoder.step(tokens_BW[kept] + 40, parents_BW[kept]),
            whole.step(tokens_BW[kept] + 40, parents_BW[kept]),
            rtol=0,
            atol=1e-4,
        )
