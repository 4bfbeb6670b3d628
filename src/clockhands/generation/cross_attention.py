"""Cross-attention as a figure, by layer and head: to which source tokens each target token attends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from clockhands.attention import Attended, record
from clockhands.data import encode_texts
from clockhands.errors import UsageError
from clockhands.findings import Figure, Mark, Panel
from clockhands.generation.translate import translate
from clockhands.runs import Run, open_run
from clockhands.shapes import Float, Tensor

__all__ = ["compute_cross_attention", "draw_cross_attention"]


def compute_cross_attention(
    run: str | Path | Run, source: str, target: str | None = None
) -> tuple[Float[Tensor, "L H S T"], list[str], list[str]]:
    """Compute the weights of the decoder's cross-attention; return them with source tokens [T] and target tokens [S].

    The target is the model's own translation unless given. Raises UsageError for an empty source.
    """
    run = open_run(run)
    run.require("encoder-decoder", "draw cross-attention")
    if not source.strip():
        raise UsageError("there is no source sentence to draw the attention of")
    if target is None:
        target = next(translate(run, [source])).text
    device = run.model.device
    ids_BT = torch.tensor(encode_texts(run.tokenizers.source, [source]), device=device)
    labels_BS = torch.tensor(encode_texts(run.tokenizers.target, [target]), device=device)
    recorded: list[Attended] = []
    with record(recorded.append), torch.inference_mode():
        run.model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT), labels=labels_BS)
    layers = run.model.config.num_hidden_layers
    # The decoder's layers come last and attend twice each: to themselves, then to the source.
    cross_attentions = recorded[-2 * layers :][1::2]
    weights_LHST = torch.stack([attended.weights_BHST[0].float().cpu() for attended in cross_attentions])
    return weights_LHST, _decode_tokens(run.tokenizers.source, ids_BT), _decode_tokens(run.tokenizers.target, labels_BS)


def draw_cross_attention(run: str | Path | Run, source: str, target: str | None = None) -> Figure:
    """Draw one heatmap for each layer and head: target tokens down, source tokens across."""
    weights_LHST, sources, targets = compute_cross_attention(run, source, target)
    panels = [
        Panel(
            (Mark("heatmap", z=tuple(map(tuple, head_ST.tolist())), x=tuple(sources), y=tuple(targets)),),
            title=f"layer {layer + 1}, head {head + 1}",
        )
        for layer, layer_HST in enumerate(weights_LHST)
        for head, head_ST in enumerate(layer_HST)
    ]
    caption = (
        "How much the decoder attends to each source token (column) where it predicts a target token (row); every row "
        "sums to 1."
    )
    return Figure(tuple(panels), caption, columns=min(4, weights_LHST.shape[1]), height=len(targets) / len(sources))


def _decode_tokens(tokenizer: Any, ids_BS: Tensor) -> list[str]:
    """Return each token as a person reads it."""
    return [tokenizer.decode([token]) or tokenizer.convert_ids_to_tokens(int(token)) for token in ids_BS[0]]
