"""A growing cache copies what it holds seldom: when its room is used up, or when rows are chosen."""

from __future__ import annotations

import torch

from clockhands.model.growing_cache import SMALLEST_BUFFER, GrowingCache, LayerCache


def test_a_cache_moves_what_it_holds_only_when_its_room_is_used_up() -> None:
    """Twice the room each time, so that n tokens are copied at most n times more in all."""
    layer, parts = LayerCache(), torch.randn(2, 1, 3, 100, 4).unbind(0)
    places = []
    for at in range(100):
        keys, values = layer.append(parts[0][:, :, at : at + 1], parts[1][:, :, at : at + 1])
        places.append((keys.data_ptr(), values.data_ptr()))
        assert torch.equal(keys, parts[0][:, :, : at + 1]) and torch.equal(values, parts[1][:, :, : at + 1])
    moves = [at for at in range(1, 100) if places[at] != places[at - 1]]
    assert len(moves) <= 4, moves
    assert moves[0] == SMALLEST_BUFFER


@torch.no_grad()
def test_the_room_of_a_cache_outlives_a_choice_of_rows() -> None:
    """A beam search chooses rows at every step; the step after must not move all cached keys once more."""
    cache, text = GrowingCache(1), torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    cache.update(text, -text, 0)
    rows = torch.tensor([2, 0, 0])
    cache.select(rows)
    before = cache.layers[0].keys.data_ptr()
    keys, values = cache.update(text[:, :, :1], -text[:, :, :1], 0)
    wanted = torch.cat([text[rows], text[:, :, :1]], dim=2)
    assert torch.equal(keys, wanted) and torch.equal(values, -wanted)
    assert keys.data_ptr() == before
