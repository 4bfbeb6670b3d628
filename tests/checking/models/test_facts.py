"""How position enters is seen in what a model does, whatever its parts are called."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import clockhands
from clockhands.checking.models.adapter import ModuleAdapter
from clockhands.checking.models.facts import detect, find_position_tables


class Named(nn.Module):
    """A model whose second table is read at the places, at the distances, or at the tokens."""

    def __init__(self, read: str) -> None:
        super().__init__()
        self.read, self.words, self.second = read, nn.Embedding(40, 8), nn.Embedding(64, 8)

    def forward(self, ids: Tensor) -> Tensor:
        x, places = self.words(ids), torch.arange(ids.shape[1]) + 2
        if self.read == "places":
            x = x + self.second(places)
        if self.read == "distances":
            x = x + self.second(places + 8 - places[:, None]).mean(1)
        if self.read == "tokens":
            x = x + self.second(ids)
        return x.cumsum(1) @ self.words.weight.T


def test_a_table_is_one_that_is_read_at_the_places_of_the_tokens() -> None:
    models = {read: Named(read) for read in ("places", "distances", "tokens", "nothing")}
    found = {read: find_position_tables(ModuleAdapter(model), model) for read, model in models.items()}
    assert found == {"places": ["second"], "distances": [], "tokens": [], "nothing": []}
    assert detect(ModuleAdapter(models["places"])).absolute and not detect(ModuleAdapter(models["tokens"])).absolute


def test_what_cannot_be_called_has_no_table() -> None:
    model = nn.Embedding(4, 8)  # eight ids are more than it has
    assert find_position_tables(ModuleAdapter(model), model) == []


def test_an_author_declares_that_frequencies_depend_on_the_length() -> None:
    model = Named("nothing")
    assert not detect(ModuleAdapter(model)).stretches
    model.stretches = True
    assert detect(ModuleAdapter(model)).stretches


class Held(Named):
    """A table without an ``nn.Embedding``, which nothing tells from any other parameter."""

    def __init__(self) -> None:
        super().__init__("nothing")
        self.rows = nn.Parameter(torch.randn(64, 8))

    def forward(self, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        places = torch.arange(ids.shape[1]).expand_as(ids) if positions is None else positions
        return (self.words(ids) + self.rows[places]).cumsum(1) @ self.words.weight.T


def test_a_shift_that_fails_says_how_absolute_positions_are_declared() -> None:
    torch.manual_seed(0)
    finding = clockhands.check(Held(), only=["shift"], max_length=64)["check.shift"]
    assert finding.light == "bad" and "absolute=True declares" in finding.verdict
    assert clockhands.check(Held(), only=["shift"], max_length=64, absolute=True)["check.shift"].light != "bad"
