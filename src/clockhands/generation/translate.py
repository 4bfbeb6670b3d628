"""Translation of a stream of sentences with a trained run, in order and without end; and how it attends to a source."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch

from clockhands.attention import RecordedAttention, record
from clockhands.data import encode_texts
from clockhands.data.datasets import LONGEST, pad, shorten_rows
from clockhands.devices import choose_device
from clockhands.errors import CheckpointError, UsageError, explain_overflow
from clockhands.findings import Figure, Panel, make_heatmap
from clockhands.generation.engines import ENGINES, Engine, get_end_tokens
from clockhands.generation.generate import Beam, check_memory
from clockhands.options import Count, Range, check_options, options_of
from clockhands.runs import Run, open_run
from clockhands.runs.opening import PlainRun, open_plain
from clockhands.shapes import Float, Tensor

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel


MOST_POOL_BATCHES = 32
"""The most batches in a pool, which is what is read at a time and sorted by length: a larger pool needs less padding.

The first pool is one batch and each is twice as large as the one before, so that the first translations come soon.
"""
LARGEST_PENALTY = 10
"""The largest length penalty, up or down. With 10 the longest text practically always wins, or with -10 the shortest.

tokens ** 10 also fits the float32 in which CTranslate2 computes scores, for texts of up to 7,131 tokens.
"""
LENGTH_BUCKET = 16
"""The bound on a translation follows from the source's length, rounded up to a multiple of this number of tokens.

All sources of a batch have the same bound, and rounded lengths are equal more often.
"""
EXTRA_TOKENS = 50
"""Tokens that a translation may have beyond twice its source's rounded length."""


@dataclass(frozen=True)
class Translation:
    """A sentence with its translation.

    Args:
        source: the sentence.
        text: its translation.
        score: what the search maximised: the natural log-probability of the translation over its number of tokens, the
            end token included, to the power ``Search.length_penalty``; with 1, the mean of a token.
    """

    source: str
    text: str
    score: float


@dataclass(frozen=True)
class Search:
    """How ``translate`` searches for translations.

    Args:
        beam: the number of hypotheses of each source; 1 is greedy search.
        length_penalty: a beam returns the text with the highest log-probability / tokens ** ``length_penalty``.
        batch: the number of sources that are translated at a time.
        max_length: the most tokens of a translation, its end token included; None: 2 · (source tokens, rounded up to a
            multiple of 16) + 50.
        engine: a name of ``ENGINES``: ``transformers`` runs every model, ``ctranslate2`` is faster and runs fewer
            models; None: the faster one, where both write the same (``choose_engine``).
        compute_type: the number type of the engine's matrix products: float32, int8, bfloat16, ...; None: the engine
            chooses, ``transformers`` the type of the weights and ``ctranslate2`` float32.
        max_source: the most tokens of a source that are read; longer sources are cut, with a ClockhandsWarning that
            counts them. ``evaluate`` cuts references to as many tokens when it measures their loss.

    Raises UsageError for values out of range and an unknown engine.
    """

    beam: Beam = 1
    length_penalty: Annotated[float, Range(least=-LARGEST_PENALTY, most=LARGEST_PENALTY)] = 1.0
    batch: Count = 64
    max_length: Count | None = None
    engine: str | None = None
    compute_type: str | None = None
    max_source: Count = LONGEST

    def __post_init__(self) -> None:
        _, faults = check_options(vars(self), options_of(Search), "the search", prefix="")
        if self.beam == 1 and self.length_penalty != 1:
            faults.append(
                f"length_penalty is {self.length_penalty}, but beam is 1, and the penalty compares the hypotheses of a "
                "beam; give a beam of 4 (--beam 4), or leave length_penalty out"
            )
        if self.compute_type is not None and self.engine is None:
            faults.append(
                f"compute_type is {self.compute_type}, but no engine is given; name one of {', '.join(ENGINES)} with "
                "it (--engine)"
            )
        if self.engine not in (None, *ENGINES):
            faults.append(ENGINES.describe_unknown_name(str(self.engine)))
        if faults:
            raise UsageError("; ".join(faults))

    def make_engine(self, run: Run | PlainRun) -> Engine:
        """Make the engine for a run. Raises UsageError if it is not installed or cannot run the model."""
        return ENGINES[self.engine or choose_engine(run.model, self.beam)](run.model, self.compute_type)


def choose_engine(model: ClockhandsPreTrainedModel, beam: int) -> str:
    """Choose the faster engine of two that write the same: ``ctranslate2`` where it serves, else ``transformers``.

    It serves greedy search on a CPU with float32 weights, for models that it can express. Its beams stop earlier than
    those of ``generate`` and may write other texts; which of two searches is used must not follow from the scheme.
    """
    if beam > 1 or model.device.type != "cpu" or next(model.parameters()).dtype != torch.float32:
        return "transformers"
    if importlib.util.find_spec("ctranslate2") is None or not get_end_tokens(model):
        return "transformers"
    from clockhands.generation.engines.ctranslate import list_obstacles

    return "transformers" if list_obstacles(model.transformer) else "ctranslate2"


def open_translator(run: str | Path | Run | PlainRun, search: Search, action: str) -> Run | PlainRun:
    """Open a run that translates, without transformers where that serves; ``action``: what was to be done.

    Raises UsageError if it does not translate, and what ``open_run`` raises.
    """
    if isinstance(run, PlainRun):
        return run
    plain = None if isinstance(run, Run) else open_quickly(Path(run), search)
    if plain is not None:
        return plain
    opened = open_run(run)
    opened.require("encoder-decoder", action)
    return opened


def open_quickly(run: Path, search: Search) -> PlainRun | None:
    """Open a translator without transformers; None where it needs them: for its search, its engine, or for a GPU."""
    # The engine that needs no transformers serves greedy search, where no other is named.
    is_served = search.beam == 1 and search.engine in (None, "ctranslate2") and search.compute_type is None
    plain = open_plain(run) if is_served and choose_device(None).type == "cpu" else None
    return plain if plain is not None and choose_engine(plain.model, search.beam) == "ctranslate2" else None


def translate(
    run: str | Path | Run | PlainRun, sources: Iterable[str], search: Search | None = None
) -> Iterator[Translation]:
    """Yield the translation of each sentence, in order; sources are read as needed, so a pipe is possible.

    ``search``: beam, lengths, batch and engine (default: ``Search()``, greedily with the engine that serves).

    A sentence that is empty, or of which ``max_source`` leaves only its end, has an empty translation with the score 0.

    At the call, raises UsageError if the run does not translate, if the engine cannot run its model, and if not even
    one translation of ``max_length`` tokens fits the memory, and what ``open_run`` raises. During the iteration, raises
    UsageError for a batch that does not fit the memory, PositionError for tokens beyond a scheme's last position, and
    CheckpointError for logits that are NaN or infinite.
    """
    search = search or Search()
    opened = open_translator(run, search, "translate")
    if search.max_length is not None:
        # A model that never writes an end token goes on to this length, and with too large a bound would not return.
        sizes = {"batch": 1, "beam": search.beam, "length": search.max_length}
        check_memory(opened.model, opened.model.device, **sizes, advice="max_length (--max-length)")
    return _translate_pools(opened, search.make_engine(opened), iter(sources), search)


def _translate_pools(
    run: Run | PlainRun, engine: Engine, stream: Iterator[str], search: Search
) -> Iterator[Translation]:
    """Yield the translations of a stream, in pools that grow up to ``MOST_POOL_BATCHES`` batches."""
    pad_id, device, pool_batches = run.tokenizers.source.pad_token_id, run.model.device, 1
    advice = "batch (--batch)" if search.beam == 1 else "beam (--beam) or batch (--batch)"
    while pool := list(islice(stream, min(search.batch * pool_batches, sys.maxsize))):
        pool_batches = min(2 * pool_batches, MOST_POOL_BATCHES)
        nonempty = [index for index, source in enumerate(pool) if source.strip()]
        encoded = encode_texts(run.tokenizers.source, [pool[index] for index in nonempty])
        ids = dict(zip(nonempty, shorten_rows(encoded, search.max_source, "max_source"), strict=True))
        # Of some texts nothing is left but the token that ends them: engines would differ in what they make of it.
        ids = {index: row for index, row in ids.items() if row != [run.tokenizers.source.eos_token_id]}
        # Batches of similar lengths. Their sources have the same bound, so that a translation that does not end does
        # not depend on its batch.
        batches = []
        order = sorted(ids, key=lambda index: len(ids[index]))
        for bound, group in groupby(order, key=lambda index: bound_length(len(ids[index]), search.max_length)):
            alike = list(group)
            batches += [(bound, alike[first : first + search.batch]) for first in range(0, len(alike), search.batch)]
        for _, indices in batches:
            # Refused is what does not fit even if each translation is only as long as its source.
            longest = len(ids[indices[-1]])
            length = min(longest, search.max_length or longest)
            sizes = {"batch": len(indices), "beam": search.beam, "length": length, "source_length": longest}
            check_memory(run.model, device, **sizes, advice=advice)
        translations = [Translation(source, "", 0.0) for source in pool]
        for bound, indices in batches:
            ids_BT, mask_BT = pad([np.asarray(ids[index], dtype=np.int32) for index in indices], pad_id)
            wanted = bound, search.beam, search.length_penalty
            outputs = engine.generate(ids_BT.to(device), mask_BT.to(device).bool(), *wanted)
            tokens = [output.tokens for output in outputs]
            texts = run.tokenizers.target.batch_decode(tokens, skip_special_tokens=True)
            if not all(math.isfinite(output.log_probability) for output in outputs):
                raise CheckpointError(explain_overflow(str(run.path)))
            for index, text, output in zip(indices, texts, outputs, strict=True):
                score = output.log_probability / len(output.tokens) ** search.length_penalty
                translations[index] = Translation(pool[index], text, score)
        yield from translations


def bound_length(tokens: int, max_length: int | None = None) -> int:
    """Return the most tokens that the translation of a source of ``tokens`` tokens may have."""
    return max_length or 2 * LENGTH_BUCKET * math.ceil(tokens / LENGTH_BUCKET) + EXTRA_TOKENS


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
    layers; PositionError for tokens beyond a scheme's last position; CheckpointError for weights that are NaN; and what
    ``open_run`` raises.
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
    if not bool(weights_LHST.isfinite().all()):
        raise CheckpointError(explain_overflow(str(run.path)))
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
