"""Shaw's keys against Wav2Vec2-BERT and SpeechT5."""

from __future__ import annotations

import torch
from transformers import Wav2Vec2BertConfig
from transformers.models.speecht5.modeling_speecht5 import SpeechT5RelativePositionalEncoding
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as wav2vec2

from clockhands import positions
from clockhands.attention import attend
from clockhands.schemes import AttentionInputs, Shaw
from tests.schemes.peers import agree, copied, leaf

HEADS, LENGTH, WIDTH, CLIP = 3, 12, 8, 4


def test_attention_with_keys_is_that_of_wav2vec2_bert() -> None:
    ours = Shaw(WIDTH, clip=CLIP, values=False)
    known = ours.to_hf_config()
    assert known is not None and Shaw(WIDTH, clip=CLIP).to_hf_config() is None
    config = Wav2Vec2BertConfig(hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, attention_dropout=0.0, **known)
    theirs = wav2vec2.Wav2Vec2BertSelfAttention(config).eval()
    with torch.no_grad():
        theirs.distance_embedding.weight.copy_(ours.keys_RK)
    x = leaf(2, LENGTH, HEADS * WIDTH)
    y, pos = copied(x), positions.count_up(2, LENGTH)

    def mine() -> torch.Tensor:
        layers = (theirs.linear_q, theirs.linear_k, theirs.linear_v)
        q, k, v = (layer(x).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for layer in layers)
        return theirs.linear_out(attend(ours, q, k, v, pos, pos).transpose(1, 2).flatten(2))

    pairs = [(x, y), (ours.keys_RK, theirs.distance_embedding.weight)]
    agree(mine, lambda: theirs(y)[0], pairs)


def test_key_term_is_speecht5s_whose_table_runs_the_other_way_and_lacks_a_row() -> None:
    theirs, ours = SpeechT5RelativePositionalEncoding(WIDTH, CLIP), Shaw(WIDTH, clip=CLIP)
    with torch.no_grad():
        ours.keys_RK[1:].copy_(theirs.pe_k.weight.flip(0))
        ours.keys_RK[0].copy_(theirs.pe_k.weight[-1])
    q, pos = torch.randn(2, HEADS, LENGTH, WIDTH), positions.count_up(2, LENGTH)
    term = torch.einsum("bhsk,stk->bhst", q, theirs(q[:, 0])) / WIDTH**0.5
    ours_term = ours.bias(AttentionInputs(q, q, pos, pos))
    clipped = (pos[0][:, None] - pos[0]).clamp(-CLIP, CLIP - 1)
    same = (pos[0][:, None] - pos[0]) == clipped
    torch.testing.assert_close(ours_term[..., same], term[..., same])


def test_without_values_fused_kernels_serve() -> None:
    assert Shaw(WIDTH, values=False).active_hooks() == {"bias"}
    assert Shaw(WIDTH).active_hooks() == {"bias", "values"}
