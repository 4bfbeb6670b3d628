"""A failing check of caching or padding says where tokens stand, of the models from scratch that ports are made of."""

from __future__ import annotations

import pytest
import torch
import transformers

from clockhands.checking.checks.check import select
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.verdict.judge import run_checks
from tests.checking.scratch.ports import scratch

COUNTED, MASKED = "torch.arange(past, past + new", "mask[:, None, None, :].bool())"
EXTENDED = "k, v = cache.extend(index, k, v)"
ANGLE, ADDED = "at[:, None, :, None].float()", "scores = scores - ("
STEP = "torch.arange(past {0} * (past > 0), past {0} * (past > 0) + new"


@pytest.mark.parametrize(
    ("scheme", "check", "edit", "said"),
    [
        ("rope", "cache.steps", (COUNTED, STEP.format("- 8")), "each decode step stands 8 too early"),
        ("learned", "cache.steps", (COUNTED, STEP.format("+ 3")), "each decode step stands 3 too late"),
        ("rope", "cache.chunks", (COUNTED, "torch.arange(0, new"), "each later chunk begins at position 0"),
        ("rope", "padding.left.mask", (MASKED, "torch.ones_like(mask)[:, None, None, :].bool())"), "reads the pads"),
        (
            "alibi",
            "cache.steps",
            (ADDED, "scores = scores - (q.shape[2] > 1) * ("),
            "each decode step adds no bias by distance",
        ),
        # The keys of the cache are rotated again in each step; a counter is 1 ahead after each chunk.
        (
            "rope",
            "cache.steps",
            (
                EXTENDED,
                EXTENDED + "; old = k.shape[2] - q.shape[2]; "
                "k = torch.cat([self.rotate(k[:, :, :old], keys_at[:, :old]), k[:, :, old:]], 2)",
            ),
            "each decode step with the keys of its cache counts each position twice",
        ),
        (
            "rope",
            "cache.chunks",
            (COUNTED, "torch.arange(past + past // 11, past + past // 11 + new"),
            "each later chunk stands 1 to 2 too late",
        ),
    ],
    ids=["angles early", "rows late", "chunk from 0", "pads read", "no bias", "keys again", "chunks late"],
)
def test_a_check_that_fails_says_where_the_tokens_stand(
    scheme: str, check: str, edit: tuple[str, str], said: str
) -> None:
    (subject,) = from_model(scratch(scheme, (edit,)))
    (outcome,) = run_checks(subject, select([check]))
    assert (outcome.verdict, outcome.check) == ("FAIL", check)
    assert outcome.cause.endswith(said)


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
    assert [outcome.cause for outcome in outcomes] == ["each decode step stands 1 too late"] * 2
