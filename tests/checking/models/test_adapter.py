"""Attributes for a plain module or function: what no check reads is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import clockhands
from clockhands.checking.models.adapter import OPTIONAL, adapt
from clockhands.errors import UsageError
from tests.checking.checks.planted import Correct


@pytest.mark.parametrize(
    ("wrong", "meant"), [("max_lenght", "max_length"), ("casual", "causal"), ("newcache", "new_cache")]
)
def test_an_unknown_attribute_is_refused_with_the_nearest_name(wrong: str, meant: str) -> None:
    message = f"unknown attribute of a model '{wrong}'; did you mean '{meant}'?"
    with pytest.raises(UsageError, match=re.escape(message)):
        adapt(Correct(), **{wrong: 8})
    with pytest.raises(UsageError, match=re.escape(message)):
        clockhands.check(lambda ids: ids, vocabulary=8, **{wrong: 8})


def test_each_known_attribute_is_taken_and_read() -> None:
    """An attribute that no module of the checker names would be taken for nothing."""
    folder = Path(clockhands.__file__).parent / "checking"
    source = "".join(path.read_text("utf8") for path in folder.rglob("*.py") if path.name != "adapter.py")
    assert [name for name in OPTIONAL if f'"{name}"' not in source and f"adapter.{name}" not in source] == []
    adapter = adapt(lambda ids: ids, vocabulary=8, **dict.fromkeys(OPTIONAL, 3))
    assert [getattr(adapter, name) for name in OPTIONAL] == [3] * len(OPTIONAL)


class Translator(nn.Module):
    """A translator around ``nn.Transformer`` with sinusoids; ``words`` are the tokens of its two sides."""

    max_length = 96

    def __init__(self, mistake: str = "", words: tuple[int, int] = (61, 40)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mistake = mistake
        self.target = nn.Embedding(words[1], 32)
        self.source = nn.Embedding(words[0], 32)
        angles = torch.arange(96)[:, None] * 1e4 ** (-torch.arange(0, 32, 2) / 32)
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1))
        self.core = nn.Transformer(32, 4, 1, 2, 64, 0.0, batch_first=True)
        self.out = nn.Linear(32, words[1])

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        length, pads = target.shape[1], None if source_mask is None else ~source_mask.bool()
        read = self.source(source) + self.places[: source.shape[1]] * (self.mistake != "no places in the source")
        if self.mistake == "the row of the batch":
            read = self.source(source) + self.places[: len(source), None]
        written = self.target(target) + self.places[: 1 if self.mistake == "the target stands at 0" else length]
        if self.mistake == "the row of the batch":
            written = self.target(target) + self.places[: len(target), None]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        mask = None if self.mistake == "no causal mask" else mask
        inside, across = (None if self.mistake == f"pads read {side}" else pads for side in ("inside", "across"))
        return self.out(
            self.core(read, written, tgt_mask=mask, src_key_padding_mask=inside, memory_key_padding_mask=across)
        )


CHECKS = ("causal", "order", "batch.order", "padding.content")


def test_an_own_encoder_decoder_is_asked_for_a_source_once() -> None:
    with pytest.raises(
        UsageError, match=re.escape("forward(source, target, source_mask) cannot read a text alone: it needs target")
    ):
        clockhands.check(Translator())
    with pytest.raises(UsageError, match=re.escape("check(model, source=[11, 12, 13, 14])")):
        clockhands.check(Translator())


def test_both_sides_of_an_own_encoder_decoder_are_checked() -> None:
    found = clockhands.check(Translator(), source=range(12, 28))
    assert str(found.facts["verdict"]).startswith("PASS")
    lights = {item.name: item.light for item in found}
    assert {lights[f"check.{name}"] for name in ("causal.future", "order.matters", "source.order.matters")} == {"good"}
    assert (lights["check.source.padding.right"], lights["check.source.padding.left.mask"]) == ("good", "info")
    assert "check.source.causal.future" not in lights or lights["check.source.causal.future"] == "skip"


@pytest.mark.parametrize(
    ("mistake", "check", "cause"),
    [
        ("no causal mask", "causal.future", "a text sees all later tokens"),
        ("no places in the source", "source.order.matters", ""),
        ("the target stands at 0", "order.places", ""),
        ("the row of the batch", "batch.order", "the encoding follows the row of the batch"),
        ("pads read inside", "source.padding.content", "before 5 pads the text and behind 5 pads the text reads"),
        ("pads read across", "source.padding.content", "the cross-attention reads the pads"),
    ],
)
def test_a_mistake_on_either_side_is_caught(mistake: str, check: str, cause: str) -> None:
    found = clockhands.check(Translator(mistake), source=range(12, 28), only=CHECKS)
    bad = {item.name.removeprefix("check."): item.details.get("cause", "") for item in found if item.light == "bad"}
    assert bad[check].startswith(cause) and bool(bad[check]) is bool(cause)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ([70, 3], "token ids 3 to 70; the encoder has 0 to 60"),
        ([5], "one text of at least two token ids"),
        ([[5, 6], [7, 8]], "one text of at least two token ids"),
        ([0.5, 0.6], "one text of at least two token ids"),
    ],
)
def test_a_source_that_is_no_text_of_the_encoder_is_refused(source: object, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        clockhands.check(Translator(), source=source)


def test_what_is_no_model_of_one_text_is_refused_before_any_check() -> None:
    with pytest.raises(UsageError, match=re.escape("takes 1 required arguments; source= is about two texts")):
        clockhands.check(nn.Sequential(nn.Embedding(30, 8)), source=[1, 2, 3])
    with pytest.raises(UsageError, match=re.escape("returns a tensor of shape [1, 8] for one text of 8 tokens")):
        clockhands.check(lambda ids: ids, vocabulary=30)
    with pytest.raises(UsageError, match="cannot read a text of eight tokens: RuntimeError: mat1"):
        clockhands.check(nn.Sequential(nn.Embedding(30, 8), nn.Linear(9, 30)))


def test_a_transformer_that_takes_the_first_axis_for_tokens_is_told() -> None:
    class Translator(nn.Module):
        vocabulary = 20

        def __init__(self) -> None:
            super().__init__()
            self.words, self.core, self.out = nn.Embedding(20, 8), nn.Transformer(8, 2, 1, 1, 8), nn.Linear(8, 20)

        def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
            return self.out(self.core(self.words(src), self.words(tgt)))  # type: ignore[no-any-return]

    with pytest.raises(UsageError, match="Its Transformer has batch_first=False"):
        clockhands.check(Translator(), source=[1, 2, 3, 4])
