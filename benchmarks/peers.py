"""The same encoder-decoder built of each library, and one training step of any of them.

All have the same layers, widths, heads and vocabulary, one embedding for source, target and output where the library
can, dropout 0, label smoothing 0.1, gradients clipped at norm 1, and the fused AdamW of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, BOS, EOS = 0, 1, 2
SMOOTHING = 0.1


@dataclass(frozen=True)
class Size:
    """Of the benchmarks' model: the paper's architecture, small."""

    d_model: int = 256
    d_ff: int = 1024
    heads: int = 4
    layers: int = 3
    vocabulary: int = 8000
    longest: int = 256


@dataclass(frozen=True)
class Pairs:
    """A batch: source, what the decoder reads, and what it must say (-100 at padding)."""

    source_BT: Tensor
    target_BS: Tensor
    labels_BS: Tensor

    @property
    def real(self) -> int:
        """Target words that are learnt."""
        return int((self.labels_BS != -100).sum())


Loss = Callable[[Pairs], Tensor]


def batch_of(sources: list[Tensor], targets: list[Tensor]) -> Pairs:
    """Rows padded to the longest; targets hold their words without a first one."""
    pad = nn.utils.rnn.pad_sequence
    labels = pad(targets, batch_first=True, padding_value=-100)
    read = F.pad(labels.masked_fill(labels == -100, PAD)[:, :-1], (1, 0), value=BOS)
    return Pairs(pad(sources, batch_first=True, padding_value=PAD), read, labels)


def random_pairs(size: Size, rows: int, length: int, shortest: int) -> Pairs:
    """Random words; the lengths are spread evenly between the two bounds."""

    def texts() -> list[Tensor]:
        lengths = torch.linspace(shortest, length, rows).round().long()[torch.randperm(rows)]
        return [torch.randint(3, size.vocabulary, (int(n),)) for n in lengths]

    return batch_of(texts(), texts())


def clockhands(size: Size, **changes: Any) -> tuple[Any, Loss]:
    """Ours; ``changes`` are options of ``TransformerConfig``."""
    from clockhands.model import TransformerConfig
    from clockhands.model.huggingface import ClockhandsConfig, ClockhandsForSeq2SeqLM

    core = TransformerConfig.from_dict({
        "vocab_size": size.vocabulary, "d_model": size.d_model, "num_heads": size.heads, "d_ff": size.d_ff,
        "dropout": 0.0, "encoder_layers": size.layers, "decoder_layers": size.layers, **changes,
    })  # fmt: skip
    model = ClockhandsForSeq2SeqLM(ClockhandsConfig(
        core.to_dict(), label_smoothing=SMOOTHING, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
        decoder_start_token_id=BOS,
    ))  # fmt: skip

    def loss(pairs: Pairs) -> Tensor:
        return model(input_ids=pairs.source_BT, attention_mask=pairs.source_BT != PAD, labels=pairs.labels_BS).loss

    return model, loss


class TorchPair(nn.Module):
    """``torch.nn.Transformer`` with the embedding that its users write around it."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=size.d_model**-0.5)
        self.body = nn.Transformer(
            size.d_model, size.heads, size.layers, size.layers, size.d_ff, dropout=0.0, batch_first=True
        )
        self.register_buffer("places", sinusoid(size.longest, size.d_model))

    def embed(self, ids_BS: Tensor) -> Tensor:
        return self.embedding(ids_BS) * math.sqrt(self.embedding.embedding_dim) + self.places[: ids_BS.shape[1]]

    def forward(self, pairs: Pairs) -> Tensor:
        padding = pairs.source_BT == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(pairs.target_BS.shape[1], dtype=torch.bool)
        states = self.body(
            self.embed(pairs.source_BT), self.embed(pairs.target_BS), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return states @ self.embedding.weight.T


def sinusoid(length: int, width: int) -> Tensor:
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def torch_transformer(size: Size) -> tuple[nn.Module, Loss]:
    model = TorchPair(size)
    return model, lambda pairs: smoothed(model(pairs), pairs)


def marian(size: Size) -> tuple[nn.Module, Loss]:
    model = marian_model(size)

    def loss(pairs: Pairs) -> Tensor:
        logits = model(
            input_ids=pairs.source_BT, attention_mask=(pairs.source_BT != PAD).long(),
            decoder_input_ids=pairs.target_BS, use_cache=False,
        ).logits  # fmt: skip
        return smoothed(logits, pairs)

    return model, loss


def marian_model(size: Size, **changes: Any) -> Any:
    """Hugging Face's; ``changes`` are options of ``MarianConfig``."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(MarianConfig(
        vocab_size=size.vocabulary, d_model=size.d_model, encoder_layers=size.layers, decoder_layers=size.layers,
        encoder_attention_heads=size.heads, decoder_attention_heads=size.heads, encoder_ffn_dim=size.d_ff,
        decoder_ffn_dim=size.d_ff, dropout=0.0, scale_embedding=True, activation_function="relu",
        max_position_embeddings=size.longest, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
        decoder_start_token_id=BOS, forced_eos_token_id=None, **changes,
    ))  # fmt: skip


def x_transformers(size: Size) -> tuple[nn.Module, Loss]:
    from x_transformers import Decoder, Encoder, TransformerWrapper

    shared = {
        "dim": size.d_model, "depth": size.layers, "heads": size.heads, "attn_dim_head": size.d_model // size.heads,
        "ff_mult": size.d_ff // size.d_model, "attn_flash": True,
    }  # fmt: skip
    words = {"num_tokens": size.vocabulary, "max_seq_len": size.longest}
    encoder = TransformerWrapper(**words, attn_layers=Encoder(**shared))
    decoder = TransformerWrapper(**words, attn_layers=Decoder(**shared, cross_attend=True), tie_embedding=True)
    decoder.token_emb = encoder.token_emb
    model = nn.ModuleList([encoder, decoder])

    def loss(pairs: Pairs) -> Tensor:
        mask = pairs.source_BT != PAD
        memory = encoder(pairs.source_BT, mask=mask, return_embeddings=True)
        return smoothed(decoder(pairs.target_BS, context=memory, context_mask=mask), pairs)

    return model, loss


def smoothed(logits_BSV: Tensor, pairs: Pairs) -> Tensor:
    return F.cross_entropy(logits_BSV.flatten(0, 1), pairs.labels_BS.flatten(), label_smoothing=SMOOTHING)


LIBRARIES: dict[str, Callable[[Size], tuple[nn.Module, Loss]]] = {
    "clockhands": clockhands,
    "torch.nn.Transformer": torch_transformer,
    "transformers Marian": marian,
    "x-transformers": x_transformers,
}


def low_precision(bf16: bool) -> AbstractContextManager[object]:
    """Autocast to bfloat16, or nothing."""
    return torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext()


def make_step(library: str, size: Size, bf16: bool) -> Callable[[Pairs], float]:
    """A model with its optimizer, as one function: forward, loss, backward, clip, update. It gives the loss."""
    torch.manual_seed(0)
    model, loss_of = LIBRARIES[library](size)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(pairs: Pairs) -> float:
        with low_precision(bf16):
            loss = loss_of(pairs)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def over(step: Callable[[Pairs], float], batches: Iterable[Pairs]) -> Callable[[], float]:
    """The loss of the last of some steps."""

    def run() -> float:
        last = math.nan
        for batch in batches:
            last = step(batch)
        return last

    return run
