"""Evaluate a model on text: scores of translations, or the loss of a language model, with a table by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from clockhands.data import IGNORED_LABEL, Pair, encode_pairs
from clockhands.data.datasets import LONGEST, PairCollator
from clockhands.errors import DataError, UsageError
from clockhands.findings import Table
from clockhands.generation.score import Evaluation, Loss, evaluate_windows, make_bleu, match_exactly, score_translations
from clockhands.generation.translate import Search, Translation, open_translator, translate
from clockhands.model.loss import shift_right
from clockhands.model.masks import TokenBatch
from clockhands.options import check_value
from clockhands.progress import CountProgress, ignore_count
from clockhands.runs import Run
from clockhands.runs.opening import PlainRun

if TYPE_CHECKING:
    from clockhands.models import LanguageModel


WINDOW_LENGTH = 128
"""The tokens of a window in which a language model reads documents, where no length is given."""


def evaluate(
    run: str | Path | Run | PlainRun | LanguageModel | nn.Module,
    text: Sequence[Pair] | Sequence[str],
    *,
    tokenizer: Callable[..., Any] | None = None,
    search: Search | None = None,
    tokenize: str = "13a",
    lowercase: bool = False,
    length: int | None = None,
    stride: int | None = None,
    batch: int | None = None,
    buckets: int = 5,
    progress: CountProgress = ignore_count,
) -> Evaluation:
    """Evaluate a translator on pairs, or a language model, ours or any of transformers, on documents.

    ``search``, ``tokenize`` and ``lowercase`` are for a translator; ``length``, ``stride`` and ``batch`` are for a
    language model, which reads windows (``evaluate_windows``). Each of the two ignores the options of the other.

    Args:
        run: the model; for a translator, a run. A language model of transformers may be open already, also one with an
            installed scheme (``attention.install``); it is put into evaluation mode.
        text: pairs, whose targets are the references, or documents.
        tokenizer: that of a model that is open already.
        search: how to translate; None: greedily.
        tokenize, lowercase: options of sacreBLEU (``score_translations``).
        length: the tokens of a window, at least 2; None: ``WINDOW_LENGTH``.
        stride: how many tokens after the beginning of a window the next one begins; None: the most that leave no token
            out.
        batch: windows at a time; None: as many as fit the memory, at most 32.
        buckets: the most rows of the table of the loss: by the length of the target for a translator, and for a
            language model by the place of the predicted token in its window, from 1 to ``length - 1``.
        progress: called with what is counted, how many are done and how many there are.

    Raises UsageError if the text does not suit the model, for an option out of range, for a text shorter than a window,
    and for what does not fit the memory; PositionError for tokens beyond a scheme's last position; DataError if there
    is no text, if pairs and documents are mixed, and for items that are neither; and what opening a model raises
    (``open_run``, ``open_language_model``).
    """
    sizes = {"length": length, "stride": stride, "batch": batch, "buckets": buckets}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in sizes.items()}
    if faults := [fault for name, value in plain.items() for fault in check_value(name, value, int | None)]:
        raise UsageError("; ".join(faults))
    if buckets < 1:
        raise UsageError(f"buckets={buckets}; the table by length has at least 1 row")
    if isinstance(text, str):
        raise DataError("the text is a str, not a sequence of documents; put it into a list")
    pairs = [pair for pair in text if isinstance(pair, Pair)]
    documents = [document for document in text if isinstance(document, str)]
    if not text:
        raise DataError("there is no text to evaluate on")
    if len(pairs) + len(documents) < len(text):
        kind = next(type(item).__name__ for item in text if not isinstance(item, Pair | str))
        raise DataError(f"the text holds a {kind}; each item must be a Pair, or a document as a str")
    if pairs and documents:
        raise DataError("the text mixes pairs and documents; evaluate them one after the other")
    if not documents and isinstance(run, str | Path | Run | PlainRun):
        search = search or Search()
        opened = open_translator(run, search, "evaluate translations")
        return _evaluate_pairs(opened, pairs, search, tokenize, lowercase, buckets, progress)
    from clockhands.models import LanguageModel, to_language_model

    if documents:
        source = run.path if isinstance(run, PlainRun) else run
        model = to_language_model(source, "evaluate continuations", tokenizer=tokenizer)
        length = WINDOW_LENGTH if length is None else length
        return evaluate_windows(
            model, documents, length, stride=stride, batch=batch, buckets=buckets, progress=progress
        )
    name = run.source if isinstance(run, LanguageModel) else type(run).__name__
    raise UsageError(
        f"cannot evaluate translations with {name}, which is no run; give documents, each a str, instead of Pairs"
    )


def _evaluate_pairs(
    run: Run | PlainRun,
    pairs: list[Pair],
    search: Search,
    tokenize: str,
    lowercase: bool,
    buckets: int,
    progress: CountProgress,
) -> Evaluation:
    make_bleu(tokenize, lowercase=lowercase)  # An unknown tokenization is refused before anything is translated.
    translations: list[Translation] = []
    progress("translating", 0, len(pairs))
    for translation in translate(run, [pair.source for pair in pairs], search):
        translations.append(translation)
        progress("translating", len(translations), len(pairs))
    references = [pair.target for pair in pairs]
    texts = [translation.text for translation in translations]
    scores = score_translations(texts, references, tokenize=tokenize, lowercase=lowercase)
    loss = measure_pair_loss(run, pairs, search.batch, search.max_source, progress, option="max_source")
    is_exact_N = match_exactly(texts, references)
    # A bucket holds the lengths above one edge, up to and including the next, and about as many pairs as any other; if
    # all lengths are equal there is one.
    edges = np.unique(np.quantile(loss.tokens_N, np.linspace(0, 1, min(buckets, len(pairs)) + 1), method="nearest"))
    rows = []
    for low, high in zip([edges[0] - 1, *edges[1:-1]], edges[1:] if len(edges) > 1 else edges, strict=True):
        inside_N = (loss.tokens_N > low) & (loss.tokens_N <= high)
        if inside_N.any():
            part = Loss(loss.nats_N[inside_N], loss.tokens_N[inside_N])
            rows.append([f"{low + 1}-{high}", int(inside_N.sum()), part.mean, 100 * float(is_exact_N[inside_N].mean())])
    table = Table.of(["target tokens", "pairs", "loss per token", "exact match %"], rows)
    return Evaluation((*scores, loss.to_score()), loss, table, tuple(translations))


def measure_pair_loss(
    run: Run | PlainRun,
    pairs: Sequence[Pair],
    batch: int = 64,
    max_length: int = LONGEST,
    progress: CountProgress = ignore_count,
    option: str = "max_length",
) -> Loss:
    """Measure the loss of each target given its source, ``batch`` pairs at a time; the result is in the order of pairs.

    Both are cut to ``max_length`` tokens; a ClockhandsWarning says how many were cut, and names ``option``, what the
    caller calls that bound. ``progress`` is called as in ``evaluate``. Raises DataError if there are no pairs, and
    PositionError for tokens beyond a scheme's last position.
    """
    dataset = encode_pairs(pairs, run.tokenizers, max_length=max_length, longer="cut", option=option)
    order = np.argsort(dataset.lengths.max(axis=1), kind="stable")
    collate = PairCollator(run.tokenizers.source.pad_token_id)
    model = run.model.transformer
    nats_N, tokens_N = np.zeros(len(order)), np.zeros(len(order), np.int64)
    for index, indices in enumerate(np.split(order, range(batch, len(order), batch))):
        progress("measuring the loss", index * batch, len(order))
        batched = collate([dataset[int(i)] for i in indices])
        ids_BT, mask_BT, labels_BS = (value.to(run.model.device) for value in batched.values())
        with torch.inference_mode():
            source = model.encode(TokenBatch(ids_BT, mask_BT.bool()))
            states_BSD = model.decode(TokenBatch(shift_right(labels_BS, run.model.config)), source)
            logits_BVS = model.output(states_BSD).float().transpose(1, 2)
        loss_BS = F.cross_entropy(logits_BVS, labels_BS, ignore_index=IGNORED_LABEL, reduction="none")
        nats_N[indices] = loss_BS.sum(-1).cpu().numpy()
        tokens_N[indices] = dataset.lengths[indices, 1]
    return Loss(nats_N, tokens_N)
