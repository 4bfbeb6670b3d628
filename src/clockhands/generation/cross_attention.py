"""The weights of the decoder's cross-attention, and a figure of them for every layer and head."""

from __future__ import annotations

from pathlib import Path

import torch

from clockhands.attention import RecordedAttention, record
from clockhands.data import encode_texts
from clockhands.errors import UsageError
from clockhands.findings import Figure, Panel, make_heatmap
from clockhands.generation.translate import translate
from clockhands.runs import Run, open_run
from clockhands.shapes import Float, Tensor


def compute_cross_attention(
    run: str | Path | Run, source: str, target: str | None = None
) -> tuple[Float[Tensor, "L H S T"], list[str], list[str]]:
    """Compute the weights of the decoder's cross-attention for one pair of sentences.

    Args:
        run: a trained encoder-decoder.
        source: the sentence to translate.
        target: its translation; None: the translation of the model itself.

    Returns the weights [layers, heads, target tokens, source tokens], in float32 on the CPU, with the source tokens and
    the target tokens as text; a row holds the weights with which the decoder, having read the tokens before, predicts
    that target token. Raises UsageError for an empty source, for a run that does not translate and for a decoder of 0
    layers; PositionError for tokens beyond a scheme's last position; and what ``open_run`` raises.
    """
    run = open_run(run)
    run.require("encoder-decoder", "draw cross-attention")
    layers = run.model.config.num_hidden_layers
    if layers == 0:
        raise UsageError(f"{run.path} has a decoder of 0 layers, so there is no cross-attention to draw")
    if not source.strip():
        raise UsageError("there is no source sentence to draw the attention of")
    if target is None:
        target = next(translate(run, [source])).text
    ids_BT = torch.tensor(encode_texts(run.tokenizers.source, [source]), device=run.model.device)
    labels_BS = torch.tensor(encode_texts(run.tokenizers.target, [target]), device=run.model.device)
    recorded: list[RecordedAttention] = []
    with record(recorded.append), torch.inference_mode():
        run.model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT), labels=labels_BS)
    # The decoder's layers come last and attend twice each: to themselves, then to the source.
    cross_attentions = recorded[-2 * layers :][1::2]
    weights_LHST = torch.stack([attended.weights_BHST[0].float().cpu() for attended in cross_attentions])
    texts = []
    for tokenizer, ids_BS in ((run.tokenizers.source, ids_BT), (run.tokenizers.target, labels_BS)):
        # One that decodes to no text is told by its name in the vocabulary.
        own = [tokenizer.decode([token]) or tokenizer.convert_ids_to_tokens(token) for token in ids_BS[0].tolist()]
        texts.append(list(map(str, own)))
    return weights_LHST, texts[0], texts[1]


def draw_cross_attention(run: str | Path | Run, source: str, target: str | None = None) -> Figure:
    """Draw one heatmap of the cross-attention for each layer and head: target tokens down, source tokens across.

    The arguments and errors are those of ``compute_cross_attention``.
    """
    run = open_run(run)
    weights_LHST, source_tokens, target_tokens = compute_cross_attention(run, source, target)
    # Only the softmax makes the weights of every row sum to 1, and a scheme may bring another normaliser.
    schemes = run.model.transformer.cross_schemes
    is_softmax = schemes is None or "weigh" not in schemes.active_hooks()
    rows = "every row sums to 1" if is_softmax else "its scheme replaces the softmax, and rows need not sum to 1"
    panels = []
    for layer, layer_HST in enumerate(weights_LHST.tolist(), 1):
        for head, head_ST in enumerate(layer_HST, 1):
            mark = make_heatmap(head_ST, x=tuple(source_tokens), y=tuple(target_tokens))
            panels.append(Panel((mark,), title=f"layer {layer}, head {head}"))
    caption = (
        f"How much the decoder attends to each source token (column) where it predicts a target token (row); {rows}."
    )
    height = len(target_tokens) / len(source_tokens)
    title = "Attention from target to source, head by head"
    return Figure(tuple(panels), caption, columns=min(4, weights_LHST.shape[1]), height=height, title=title)
