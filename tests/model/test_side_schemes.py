"""A schedule of schemes: each layer has its own, and the laws of a model hold as they do with one scheme for all."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from clockhands.attention import record
from clockhands.errors import ConfigError
from clockhands.model import PositionConfig, Transformer
from clockhands.model.huggingface import ClockhandsForCausalLM
from clockhands.model.size import count_parameters
from clockhands.schemes import Composition, NoPosition, RoPE, Window
from clockhands.schemes.position_presets import POSITION_PRESETS
from tests.model.test_laws import LENGTH, POSITIONS, make_decoder, padded
from tests.model.tiny import core, model, words

SMALL = [{"scheme": "window", "left": 2}, {"scheme": "rope", "base": 50.0}]


@pytest.mark.parametrize("name", POSITIONS)
@torch.no_grad()
def test_saved_and_loaded_it_is_the_same(name: str, tmp_path: Path) -> None:
    made = make_decoder(name)
    made.save_pretrained(tmp_path)
    again, text = ClockhandsForCausalLM.from_pretrained(tmp_path), words(1, LENGTH)
    assert torch.equal(again(input_ids=text).logits, made(input_ids=text).logits)
    assert again.config.transformer == made.config.transformer
    assert torch.equal(copy.deepcopy(made)(input_ids=text).logits, made(input_ids=text).logits)


@pytest.mark.parametrize("name", [*POSITIONS, "hybrid-2026", "gpt-oss", "llama-4"])
@torch.no_grad()
def test_generating_with_a_cache_and_without_writes_the_same(name: str) -> None:
    made = model(decoder={"preset": name}, decoder_layers=4) if name in POSITION_PRESETS else make_decoder(name)
    text, mask, _ = padded("left")
    texts = [
        made.generate(text, attention_mask=mask, max_new_tokens=8, do_sample=False, use_cache=cached)
        for cached in (True, False)
    ]
    assert torch.equal(*texts)


@torch.no_grad()
def test_each_layer_computes_with_its_own_scheme() -> None:
    """Two layers of a schedule are those of two models that have one scheme each."""
    mixed = Transformer(core(kind="decoder", decoder={"layers": SMALL})).eval()
    kinds = [type(mixed.get_stack("decoder").schemes.get_scheme(layer)) for layer in (0, 1)]
    assert kinds == [Window, RoPE]
    seen: list[Any] = []
    stack = mixed.get_stack("decoder")
    with record(seen.append):
        stack.forward(words(1, LENGTH), _placement(LENGTH))
    bias = seen[0].bias_BHST
    assert bias is not None and bias[0, 0, 5].isneginf().tolist()[:6] == [True, True, True, False, False, False]
    assert seen[1].bias_BHST is None


def _placement(length: int) -> Any:
    from clockhands import positions
    from clockhands.model.masks import Placement

    pos = positions.count_up(1, length)
    return Placement(pos, pos, None, causal=True)


def test_layers_that_are_alike_share_one_scheme_and_those_with_tables_of_their_own_do_not() -> None:
    local = {"schemes": ["t5", "sinks"]}
    stack = Transformer(core(kind="decoder", decoder_layers=4, decoder={"layers": [local, "rope"]})).get_stack(
        "decoder"
    )
    first, second, third, fourth = map(stack.schemes.get_scheme, range(4))
    assert second is fourth and isinstance(second, RoPE)
    assert isinstance(first, Composition) and isinstance(third, Composition) and first is not third
    assert first.parts[0] is third.parts[0] and first.parts[1] is not third.parts[1]


def test_skipping_is_a_pattern_with_none() -> None:
    skipping = Transformer(core(kind="decoder", decoder_layers=4, decoder={"scheme": "rope", "skip_every": 2}))
    pattern = Transformer(core(kind="decoder", decoder_layers=4, decoder={"layers": ["rope", "none"]}))
    pattern.load_state_dict(skipping.state_dict())
    assert isinstance(pattern.get_stack("decoder").schemes.get_scheme(1), NoPosition)
    from clockhands.model import TokenBatch

    text = TokenBatch(words(1, 6))
    assert torch.equal(skipping.decode(text), pattern.decode(text))


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ({"layers": ["rope"] * 5},
         r"decoder.layers has 5 entries and there are 4 layers; give one for each layer.* or end it with '\.\.\.'"),
        ({"layers": ["rope", "none", "rope"]},
         r"decoder.layers has 3 entries, a pattern whose length does not divide the 4"),
        ({"layers": []}, r"decoder.layers is empty"),
        ({"layers": ["rope", "...", "none"]}, r"decoder.layers\[1\] is '...', which can only be the last entry"),
        ({"layers": ["rope", "windov"]}, r"decoder.layers\[1\]: unknown scheme 'windov'; did you mean 'window'\?"),
        ({"layers": ["locl", "global"], "kinds": {"local": "rope", "global": "none"}},
         r"(?s)decoder.kinds.local is in no entry.*unknown kind of layer or scheme 'locl'; did you mean 'local'\?"),
        ({"layers": ["rope", {"base": 2.0}]}, r"decoder.layers\[1\]: {'base': 2.0} names no scheme"),
        ({"layers": ["rope", {"scheme": "rope", "bsae": 2.0}]},
         r"layers\[1\]: unknown option of rope 'bsae'; did you mean"),
        ({"layers": ["rope", {"schemes": ["rope", "xpos"]}]}, r"decoder: RoPE and XPos both rotate"),
        ({"scheme": "rope", "layers": ["rope", "none"]}, r"decoder: RoPE and RoPE both rotate"),
        ({"layers": ["learned", "none"]},
         r"learned adds vectors at the token embedding, before all layers; give it as"),
        ({"layers": ["axial", "rope"]}, r"positions of 1 and 2 coordinates.*; choose schemes with equally many"),
        ({"layers": ["axial", "ssmax"]}, r"; choose schemes with equally many, or set ssmax.count to 'visible', or ss"),
        ({"layers": ["mrope", {"schemes": ["mrope", {"scheme": "window", "axis": 3}]}]}, r"positions of 3 and 4 coord"),
        ({"layers": ["rope", "none"], "skip_every": 2}, r"skip_every and decoder.layers both say which layers"),
        ({"scheme": "rope", "kinds": {"local": "rope"}}, r"decoder.kinds is given and decoder.layers is not"),
        ({"preset": "gema-3"}, r"decoder.preset: unknown position preset 'gema-3'; did you mean 'gemma-3'\?"),
        ({"layers": 3}, r"decoder.layers is 3, but must be a list"),
    ],
)  # fmt: skip
def test_a_schedule_that_does_not_fit_is_refused(position: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        core(kind="decoder", decoder_layers=4, decoder=position)


def test_all_faults_of_a_schedule_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        core(kind="decoder", d_ff=0, decoder={"layers": ["ropee", {"scheme": "rope", "base": "x"}], "combine": "ad"})
    assert len(told.value.faults) >= 2


@pytest.mark.parametrize("name", POSITION_PRESETS)
def test_every_preset_makes_a_model_and_its_table_reads_back(name: str) -> None:
    side = "encoder" if name in ("modernbert", "mpnet") else "decoder"
    config = core(kind=side, decoder_layers=6, encoder_layers=6, head_dim=48, **{side: {"preset": name}})
    assert type(config).from_dict(config.to_dict()).to_dict() == config.to_dict()
    made = Transformer(config)
    assert count_parameters(config) == sum(parameter.numel() for parameter in made.parameters())


def test_a_configuration_without_a_schedule_is_saved_as_before() -> None:
    assert set(PositionConfig("rope").to_dict()) == {
        "scheme", "options", "combine", "width", "every_layer", "skip_every", "transform", "transform_options",
    }  # fmt: skip


def test_a_name_says_what_layers_have() -> None:
    names = {
        name: PositionConfig.from_dict({"preset": name}).name for name in ("gemma-3", "llama-4", "mpnet", "cohere-2")
    }
    assert names == {
        "gemma-3": "rope + window | rope",
        "llama-4": "rope + chunks | temperature",
        "mpnet": "learned + t5",
        "cohere-2": "rope + window | none",
    }
    assert (
        PositionConfig.from_dict({"scheme": "learned", "layers": ["window", "none"]}).name
        == "learned + window | learned"
    )
