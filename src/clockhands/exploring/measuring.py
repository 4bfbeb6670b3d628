"""How many held-out sentences a trained translator gets right under the controls of the page, and how sure it is.

PyTorch counts here what the script of the page counts there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from clockhands.data import Pair, encode_texts
from clockhands.errors import UsageError
from clockhands.exploring.controls import Controls, apply_controls, read_token_scale
from clockhands.generation import Search, Translation
from clockhands.generation.engines import DecodingOptions
from clockhands.generation.translate import bound_length
from clockhands.runs import Run
from clockhands.schemes import Sinusoidal

__all__ = ["MEASURED", "UNTOUCHED", "count_right", "cut_next_tokens", "measure", "translate_controlled"]

UNTOUCHED = "as it was trained"
CONTEXT = 24
"""The tokens of a held-out text of a language model, after which the next one is asked for."""
MEASURED: Mapping[str, Controls] = {
    UNTOUCHED: Controls(),
    "position left out": Controls(loudness=0.0),
    "position ¼ as loud": Controls(loudness=0.25),
    "position ½ as loud": Controls(loudness=0.5),
    "position twice as loud": Controls(loudness=2.0),
    "position 4 times as loud": Controls(loudness=4.0),
    "counted from 1": Controls(offset=1.0),
    "counted from 5": Controls(offset=5.0),
    "source reversed": Controls(reversed=True),
    "every token at position 0": Controls(frozen_at=0.0),
    "sine channels alone": Controls(sine_only=True),
    "tokens without √d": Controls(scale_tokens=False),
    "base 10": Controls(base=10.0),
    "base 100": Controls(base=100.0),
    "base 300": Controls(base=300.0),
    "base 1,000": Controls(base=1_000.0),
    "base 100,000": Controls(base=100_000.0),
    "fastest hand stopped": Controls(stopped_hand=0),
    "second hand stopped": Controls(stopped_hand=1),
    "tenth hand stopped": Controls(stopped_hand=9),
}
"""What is done to the encoder of every model with sinusoids."""


def measure(run: Run, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return for each change its name, its controls as the page names them, and what ``count_right`` counts.

    A model without sinusoids of both waves, added or not, is measured untouched alone.
    """
    if run.architecture == "decoder":
        return [{"name": UNTOUCHED, "controls": {}, **_count_next_tokens(run, pairs)}]
    scheme = run.model.transformer.get_stack("encoder").schemes.at_input
    hands = 0
    if isinstance(scheme, Sinusoidal) and scheme.waves == "both" and scheme.wavelength is None:
        hands = scheme.width // 2
    rows = []
    for name, controls in MEASURED.items():
        if controls != Controls() and (controls.stopped_hand or 0) >= hands:
            continue
        if controls.scale_tokens is False and read_token_scale(run, "encoder") == 1:
            continue  # it was trained so
        rows.append({"name": name, "controls": controls.to_page(), **count_right(run, pairs, controls)})
    return rows


def cut_next_tokens(run: Run, documents: Sequence[str], count: int) -> list[Pair]:
    """Return texts of ``CONTEXT`` tokens of documents, each with the token that follows, both as text.

    Left out are those whose text has other tokens than it was cut into. Raises UsageError where none are left.
    """
    tokenizer = run.tokenizers.source
    length = min(CONTEXT, (run.trained_length or CONTEXT + 1) - 1)
    pairs: list[Pair] = []
    for document in documents:
        ids = tokenizer(document, add_special_tokens=False)["input_ids"]
        for start in range(0, len(ids) - length, length + 1):
            window = ids[start : start + length]
            source, target = (str(tokenizer.decode(part)) for part in (window, [ids[start + length]]))
            same = tokenizer(source, add_special_tokens=False)["input_ids"] == window
            if same and source.strip() and target and "\ufffd" not in target:
                pairs.append(Pair(source, target))
            if len(pairs) == count:
                return pairs
    if not pairs:
        raise UsageError(f"the held-out documents of {run.path} are shorter than {length + 1} tokens")
    return pairs


@torch.no_grad()
def _count_next_tokens(run: Run, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Count the texts whose likeliest next token is the one that follows; ``confidence`` is its mean probability."""
    tokenizer = run.tokenizers.source
    right, confidence = 0, 0.0
    for pair in pairs:
        ids_1S = torch.tensor([tokenizer(pair.source, add_special_tokens=False)["input_ids"]], device=run.model.device)
        probabilities_V = run.model(input_ids=ids_1S, use_cache=False).logits[0, -1].float().softmax(-1)
        likeliest = int(probabilities_V.argmax())
        right += tokenizer.decode([likeliest]) == pair.target
        confidence += float(probabilities_V[likeliest])
    return {"right": right, "of": len(pairs), "confidence": round(confidence / len(pairs), 4)}


def count_right(run: Run, pairs: Sequence[Pair], controls: Controls) -> dict[str, Any]:
    """Count the pairs whose greedy translation is their target, letter by letter.

    Returns ``right``, ``of`` and ``confidence``: the mean over texts of the geometric mean of their tokens'
    probabilities.
    """
    translations = translate_controlled(run, [pair.source for pair in pairs], controls)
    right = sum(translation.text == pair.target for translation, pair in zip(translations, pairs, strict=True))
    confidence = sum(math.exp(translation.score) for translation in translations) / len(translations)
    return {"right": right, "of": len(pairs), "confidence": round(confidence, 4)}


def translate_controlled(run: Run, sources: Sequence[str], controls: Controls, beam: int = 1) -> list[Translation]:
    """Translate texts under controls, those of one length together, so that there is no padding."""
    engine = Search(beam, engine="transformers").make_engine(run)  # the modules that the controls change
    rows: dict[int, list[int]] = defaultdict(list)
    ids = encode_texts(run.tokenizers.source, list(sources))
    for index, row in enumerate(ids):
        rows[len(row)].append(index)
    translations: dict[int, Translation] = {}
    with apply_controls(run, controls):
        for length, indices in rows.items():
            ids_BT = torch.tensor([ids[index] for index in indices], device=run.model.device)
            outputs = engine.generate(ids_BT, None, DecodingOptions(bound_length(length), beam))
            written = run.tokenizers.target.batch_decode(
                [output.tokens for output in outputs], skip_special_tokens=True
            )
            for index, output, text in zip(indices, outputs, written, strict=True):
                score = output.log_probability / len(output.tokens)
                translations[index] = Translation(sources[index], text, score)
    return [translations[index] for index in range(len(sources))]
