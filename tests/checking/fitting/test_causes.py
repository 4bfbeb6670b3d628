"""A failing check of caching says where tokens stand, of models of transformers and of one that has no blocks."""

from __future__ import annotations

import pytest
import torch
import transformers

from clockhands.checking.checks.check import select
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.verdict.judge import run_checks


@pytest.mark.parametrize(
    ("model_type", "options"),
    [
        # Four heads share two keys; in its window of 8, a step runs with a mask and a cache of the last keys alone.
        ("mistral", {"sliding_window": 8}),
        # A logit of no key takes part in its softmax.
        ("gpt_oss", {"num_local_experts": 2, "num_experts_per_tok": 2, "head_dim": 8}),
        # In one layer of four, nothing tells of positions.
        ("cohere2", {"num_hidden_layers": 4}),
    ],
)
def test_the_steps_of_models_of_transformers_are_read_too(model_type: str, options: dict[str, int]) -> None:
    config = transformers.AutoConfig.for_model(
        model_type, hidden_size=32, intermediate_size=32, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=100, max_position_embeddings=256, **{"num_hidden_layers": 2, **options},
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    rotate = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids, *rest, **named: rotate(
        x, position_ids + (position_ids.shape[-1] == 1), *rest, **named
    )
    (subject,) = from_model(model)
    outcomes = run_checks(subject, select(["cache.steps", "cache.padded"]))
    assert [outcome.cause for outcome in outcomes] == ["each decode step stands 1 place too late"] * 2


class Flat(torch.nn.Module):
    """A GPT of one class: no blocks, and both attentions between the products of one module."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake
        self.words, self.places = torch.nn.Embedding(60, 64), torch.nn.Embedding(64, 64)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(64) for _ in range(2))
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(64, 192) for _ in range(2))
        self.head = torch.nn.Linear(64, 60)

    def new_cache(self) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        return {}

    def forward(self, ids, mask=None, positions=None, cache=None):  # type: ignore[no-untyped-def]
        past, (rows, new) = cache[0][0].shape[2] if cache else 0, ids.shape
        at = torch.arange(past, past + new).expand(rows, new) if mask is None else mask.long().cumsum(1)[:, -new:] - 1
        at = at.clamp(min=0) if positions is None else positions
        seen = torch.ones(new, past + new, dtype=torch.bool).tril(past)
        seen = seen if mask is None else seen & (mask[:, None, None] if mask.dim() == 2 else mask).bool()
        if self.mistake == "two late":
            at = at + 2 * (past > 0)
        x = self.words(ids) + self.places(torch.arange(rows)[:, None].expand_as(at) if self.mistake == "rows" else at)
        for layer in range(2):
            parts = self.qkv[layer](self.norms[layer](x)).chunk(3, -1)
            q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in parts)
            if cache is not None:
                k, v = (torch.cat(pair, 2) for pair in zip(cache[layer], (k, v), strict=True)) if past else (k, v)
                cache[layer] = k, v
            weights = (q @ k.mT / 4).masked_fill(~seen, -1e9).softmax(-1)
            x = x + (weights @ v).transpose(1, 2).flatten(2)
        return self.head(x)


@pytest.mark.parametrize(
    ("mistake", "check", "says"),
    [
        ("two late", "cache.steps", "each decode step stands 2 places too late"),
        ("rows", "batch.order", "the encoding follows the row of the batch"),
        ("", "cache.steps", ""),
    ],
)
def test_a_model_in_one_module_is_read_and_mended_too(mistake: str, check: str, says: str) -> None:
    """There are as many keys as a head is wide in one step, and what enters the first norm goes on beside it."""
    (subject,) = from_model(Flat(mistake), absolute=True)
    (outcome,) = run_checks(subject, select([check]))
    assert outcome.verdict == ("FAIL" if says else "PASS") and outcome.cause.startswith(says), outcome.cause
