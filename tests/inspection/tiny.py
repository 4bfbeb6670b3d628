"""Tiny random models of every family that ``inspect`` opens, and our own: two layers, width 32, four heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from clockhands.model import PositionConfig, Transformer, TransformerConfig

VOCAB, LAYERS, HEADS, WIDTH = 97, 2, 4, 32
_COMMON = {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BASE = dict(_COMMON, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS)
_BERT = dict(_BASE, intermediate_size=64, max_position_embeddings=64)
_ROBERTA = {**_BERT, "pad_token_id": 1, "bos_token_id": 0, "max_position_embeddings": 66}
_DISTILBERT = {
    "vocab_size": VOCAB, "dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
_LLAMA = dict(_BERT, num_key_value_heads=2, head_dim=8)
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
_GPT2 = dict(_COMMON, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=64)
_SEQ2SEQ = dict(
    _COMMON, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
    decoder_attention_heads=HEADS, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
    decoder_start_token_id=1,
)  # fmt: skip
_T5 = {
    "vocab_size": VOCAB, "d_model": WIDTH, "d_kv": 8, "num_layers": LAYERS, "num_heads": HEADS, "d_ff": 64,
    "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0,
}  # fmt: skip
_DEBERTA = dict(_BERT, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=16)

CONFIGS: dict[str, Callable[[], Any]] = {
    "bert": lambda: hf.BertConfig(**_BERT),
    "roberta": lambda: hf.RobertaConfig(**_ROBERTA),
    "distilbert": lambda: hf.DistilBertConfig(**_DISTILBERT),
    "distilbert-sinusoid": lambda: hf.DistilBertConfig(**_DISTILBERT, sinusoidal_pos_embds=True),
    "electra": lambda: hf.ElectraConfig(**_BERT, embedding_size=16),
    "albert": lambda: hf.AlbertConfig(**_BERT, embedding_size=16),
    "mpnet": lambda: hf.MPNetConfig(**_ROBERTA),
    "deberta": lambda: hf.DebertaConfig(**_DEBERTA, position_biased_input=False),
    "deberta-v2": lambda: hf.DebertaV2Config(
        **_DEBERTA, position_biased_input=False, position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm"
    ),
    "modernbert": lambda: hf.ModernBertConfig(
        **_BERT, cls_token_id=1, sep_token_id=2, local_attention=8, global_attn_every_n_layers=2
    ),
    "roformer": lambda: hf.RoFormerConfig(**_BERT, embedding_size=WIDTH),
    "gpt2": lambda: hf.GPT2Config(**_GPT2),
    "gpt-neo": lambda: hf.GPTNeoConfig(
        **_COMMON,
        hidden_size=WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        max_position_embeddings=64,
        attention_types=[[["global", "local"], 1]],
        window_size=8,
        intermediate_size=64,
    ),
    "gpt-j": lambda: hf.GPTJConfig(**_GPT2, rotary_dim=4),
    "gpt-neox": lambda: hf.GPTNeoXConfig(**_BERT),
    "opt": lambda: hf.OPTConfig(**_BASE, ffn_dim=64, max_position_embeddings=64, word_embed_proj_dim=WIDTH),
    "bloom": lambda: hf.BloomConfig(**_COMMON, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS),
    "mpt": lambda: hf.MptConfig(**_COMMON, d_model=WIDTH, n_heads=HEADS, n_layers=LAYERS, max_seq_len=64),
    "falcon-rotary": lambda: hf.FalconConfig(**_BASE, alibi=False),
    "falcon-alibi": lambda: hf.FalconConfig(**_BASE, alibi=True, multi_query=False, new_decoder_architecture=False),
    "llama": lambda: hf.LlamaConfig(**_LLAMA),
    "llama-yarn": lambda: hf.LlamaConfig(**_LLAMA, rope_parameters=_YARN),
    "qwen2": lambda: hf.Qwen2Config(**_LLAMA),
    "qwen3": lambda: hf.Qwen3Config(**_LLAMA),
    "mistral": lambda: hf.MistralConfig(**_LLAMA, sliding_window=8),
    "gemma2": lambda: hf.Gemma2Config(**_LLAMA, query_pre_attn_scalar=8, sliding_window=8),
    "gemma3": lambda: hf.Gemma3TextConfig(**_LLAMA, query_pre_attn_scalar=8, sliding_window=8),
    "phi3": lambda: hf.Phi3Config(**{k: v for k, v in _LLAMA.items() if k != "head_dim"}),
    "cohere": lambda: hf.CohereConfig(**_LLAMA, use_qk_norm=True),
    "smollm3": lambda: hf.SmolLM3Config(**_LLAMA, no_rope_layer_interval=2),
    "gpt-oss": lambda: hf.GptOssConfig(**_LLAMA, num_local_experts=2, num_experts_per_tok=1, sliding_window=8),
    "olmo2": lambda: hf.Olmo2Config(**{k: v for k, v in _LLAMA.items() if k != "head_dim"}),
    "bart": lambda: hf.BartConfig(**_SEQ2SEQ),
    "marian": lambda: hf.MarianConfig(**_SEQ2SEQ, scale_embedding=True),
    "t5": lambda: hf.T5Config(**_T5),
    "xlnet": lambda: hf.XLNetConfig(
        vocab_size=VOCAB, d_model=WIDTH, n_layer=LAYERS, n_head=HEADS, d_inner=64, pad_token_id=0
    ),
}

UNLISTED: dict[str, Callable[[], Any]] = {
    "xglm": lambda: hf.XGLMConfig(
        **_COMMON, d_model=WIDTH, num_layers=LAYERS, attention_heads=HEADS, ffn_dim=64, max_position_embeddings=64
    )
}
"""Families of which nothing is known: attention is read all the same."""


def tiny(name: str, *, seed: int = 0, spread: float = 1.5) -> Any:
    """A random model of the family, in evaluation mode; with matrices wide enough that attention is not flat."""
    torch.manual_seed(seed)
    model = hf.AutoModel.from_config((CONFIGS | UNLISTED)[name]()).eval()
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")  # the grouped kernels know no float64
    with torch.no_grad():
        for label, weight in model.named_parameters():
            if weight.ndim >= 2 and weight.requires_grad:
                weight.normal_(0, spread * weight.shape[-1] ** -0.5)
            elif label.endswith("bias"):
                weight.normal_(0, 0.1)
    return model


def own(position: PositionConfig | str = "rope", kind: Any = "encoder", **options: Any) -> Transformer:
    """A random model of this project whose sides have this position; ``options`` are other settings of the model."""
    torch.manual_seed(0)
    position = PositionConfig(position) if isinstance(position, str) else position
    sizes = {"vocab_size": VOCAB, "d_model": WIDTH, "num_heads": HEADS, "d_ff": 64}
    sides = {side: position for side in ("encoder", "decoder") if side in kind}
    layers = {f"{side}_layers": LAYERS for side in sides}
    return Transformer(TransformerConfig(kind=kind, **{**sizes, **sides, **layers, **options})).eval()


def draw_ids(texts: int = 6, length: int = 12, seed: int = 0) -> torch.Tensor:
    """Draw token ids that these models know; no special ones."""
    return torch.randint(3, VOCAB, (texts, length), generator=torch.Generator().manual_seed(seed))
