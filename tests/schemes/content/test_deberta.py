"""DeBERTa's two versions against transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import DebertaConfig, DebertaV2Config
from transformers.models.deberta import modeling_deberta as v1
from transformers.models.deberta_v2 import modeling_deberta_v2 as v2

from clockhands import positions
from clockhands.attention import attend
from clockhands.errors import ConfigError
from clockhands.schemes import AttentionInputs, DeBERTa
from tests.schemes.peers import agree, copied, leaf

HEADS, LENGTH, WIDTH = 3, 14, 8
D = HEADS * WIDTH


def mine(ours: DeBERTa, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    pos = positions.count_up(2, LENGTH)
    return attend(ours, q, k, v, pos, pos).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("terms", ["c2p+p2c", "c2p", "p2c"])
@pytest.mark.parametrize(("span", "buckets"), [(5, 0), (32, 8), (40, 0)])
def test_version_2_and_its_gradients(span: int, buckets: int, terms: str) -> None:
    ours = DeBERTa(D, HEADS, WIDTH, span=span, buckets=buckets, terms=terms, p2c="code")
    known = ours.to_hf_config()
    assert known is not None
    theirs = v2.DisentangledSelfAttention(DebertaV2Config(hidden_size=D, num_attention_heads=HEADS, **known)).eval()
    copy(ours, theirs, ("pos_key_proj", "pos_query_proj"))
    x = leaf(2, LENGTH, D)
    y, table = copied(x), copied(ours.table_RD)

    def ours_out() -> torch.Tensor:
        layers = (theirs.query_proj, theirs.key_proj, theirs.value_proj)
        return mine(ours, *(layer(x).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for layer in layers))

    mask = torch.ones(2, 1, LENGTH, LENGTH)
    agree(ours_out, lambda: theirs(y, mask, rel_embeddings=table)[0], [(x, y), (ours.table_RD, table)])


def test_version_1_and_its_gradients() -> None:
    span = 20
    config = DebertaConfig(
        hidden_size=D, num_attention_heads=HEADS, relative_attention=True, max_relative_positions=span,
        pos_att_type=["c2p", "p2c"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs, ours = v1.DisentangledSelfAttention(config).eval(), DeBERTa(D, HEADS, WIDTH, span=span, p2c="code")
    copy(ours, theirs, ("pos_proj", "pos_q_proj"))
    x = leaf(2, LENGTH, D)
    y, table = copied(x), copied(ours.table_RD)

    def ours_out() -> torch.Tensor:
        q, k, v = theirs.in_proj(x).view(2, LENGTH, HEADS, -1).transpose(1, 2).chunk(3, dim=-1)
        bias = (b.view(1, HEADS, 1, WIDTH) for b in (theirs.q_bias, theirs.v_bias))
        return mine(ours, q + next(bias), k, v + next(bias))

    relative = v1.build_relative_position(y, y)
    mask = torch.ones(2, 1, LENGTH, LENGTH)
    pairs = [(x, y), (ours.table_RD, table)]
    agree(ours_out, lambda: theirs(y, mask, relative_pos=relative, rel_embeddings=table)[0], pairs)


def copy(ours: DeBERTa, theirs: torch.nn.Module, names: tuple[str, str]) -> None:
    with torch.no_grad():
        ours.table_RD.normal_()
        for mine_layer, name in ((ours.to_key, names[0]), (ours.to_query, names[1])):
            if mine_layer is not None:
                layer = getattr(theirs, name)
                layer.weight.copy_(mine_layer.weight)
                if layer.bias is not None:
                    layer.bias.copy_(mine_layer.bias.normal_())


@pytest.mark.parametrize(("buckets", "span"), [(256, 512), (32, 128), (8, 64)])
def test_buckets_of_version_2_are_exact_and_those_of_transformers(buckets: int, span: int) -> None:
    offset = torch.arange(-700, 701)
    theirs = v2.make_log_bucket_position(offset, buckets, span).long()
    ours = DeBERTa(D, HEADS, WIDTH, span=span, buckets=buckets).row(offset[None, None])[0, 0]
    assert torch.equal(ours, (theirs + buckets).clamp(0, 2 * buckets - 1))


def test_trap_37_position_to_content_of_the_paper_looks_from_the_keys_side() -> None:
    pos = positions.count_up(1, LENGTH)
    paper = DeBERTa(D, HEADS, WIDTH, span=6, terms="p2c")
    code = DeBERTa(D, HEADS, WIDTH, span=6, terms="p2c", p2c="code")
    code.load_state_dict(paper.state_dict())
    assert paper.to_hf_config() is None, "no model of transformers reads the paper so"
    q, k = torch.randn(2, 1, HEADS, LENGTH, WIDTH).unbind(0)
    here, there = paper.bias(AttentionInputs(q, k, pos, pos)), code.bias(AttentionInputs(q, k, pos, pos))
    assert not torch.allclose(here, there, atol=1e-3)
    diagonal = here.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal, there.diagonal(dim1=-2, dim2=-1))


def test_half_of_the_buckets_must_stay_below_the_span() -> None:
    """The buckets beyond the exact ones are spaced by log((span - 1)/half), which must not be log 1."""
    DeBERTa(D, HEADS, WIDTH, span=4, buckets=4)
    for buckets in (6, 2, 5, 7):
        with pytest.raises(ConfigError, match=f"buckets is {buckets} with span 4"):
            DeBERTa(D, HEADS, WIDTH, span=4, buckets=buckets)
