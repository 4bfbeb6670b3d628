"""Greedy and beam search in float32 against ``generate`` of transformers, with one model in two libraries.

    python benchmarks/decoding.py

A Marian model and ours hold the same random weights, made so that texts vary and end by themselves. ``generate``
writes with Marian, and our engines with ours: ctranslate2, which is chosen where it serves (in int8 too), and
transformers. ``forced``: the end is forbidden, so that every text has 32 words. ``free``: texts end where the model
ends them, as in translation; finished ones leave the batch of ctranslate2. Where its text differs from that of
``generate``, the model in float64 says how near they were: a difference below what float32 rounds away is a tie,
broken by the order of a sum.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from peers import BOS, EOS, PAD, Size, clockhands, marian_model, random_pairs
from timing import OURS, interleave, ratio, report
from torch import Tensor

from clockhands.generation import ENGINES

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.model.peers import from_marian

ALONE = 5
"""Batch 1 takes a small part of a second: so many times more rounds of that."""
LONGEST, PEER = 32, "transformers Marian generate"
OTHERS = {"ctranslate2 int8": ("ctranslate2", "int8"), "transformers": ("transformers", None)}
END_BIAS = {"forced": -1e9, "free": 20.0}


@torch.no_grad()
def same_weights(size: Size, loudness: float = 8.0) -> tuple[Any, Any]:
    """Our model and Marian, equal in every weight: random, sure of most words, and of many different ones.

    A loud embedding makes each word depend on the word before it, so that no text repeats one word for ever.
    """
    torch.manual_seed(0)
    marian = marian_model(size, tie_word_embeddings=False)
    for name, parameter in marian.named_parameters():
        if "layers" in name and parameter.dim() == 2:
            parameter.normal_(std=3 * parameter.shape[1] ** -0.5)
        if "fc2.weight" in name:
            # Without the mean that all words have in common, different words stay different.
            parameter.sub_(parameter.mean(dim=1, keepdim=True))
    marian.model.shared.weight.normal_(std=loudness * size.d_model**-0.5)
    marian.lm_head.weight = torch.nn.Parameter(torch.randn_like(marian.lm_head.weight) * 0.5)
    place = {"scheme": "sinusoidal", "layout": "half"}
    ours, _ = clockhands(size, tying="none", attention_bias=True, output_bias=True, encoder=place, decoder=place)
    from_marian(ours.model, marian)
    for stack in (marian.model.encoder, marian.model.decoder):
        stack.embed_tokens.weight = marian.model.shared.weight
        stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())
    for stack in (ours.model.encoder, ours.model.decoder):
        stack.input.tokens.weight.copy_(marian.model.shared.weight)
    ours.model.output.weight.copy_(marian.lm_head.weight)
    return ours.eval(), marian.eval()


def set_end(ours: Any, marian: Any, bias: float) -> None:
    """How readily both models end a text."""
    with torch.no_grad():
        ours.model.output.bias[EOS] = bias
    marian.final_logits_bias[0, EOS] = bias


class Writers:
    """Both libraries on one batch, and what each of them wrote last."""

    def __init__(self, ours: Any, marian: Any, ids_BT: Tensor, beam: int) -> None:
        self.marian, self.ids_BT, self.beam = marian, ids_BT, beam
        self.mask_BT = ids_BT != PAD
        self.texts: dict[str, list[list[int]]] = {}
        self.writers = {OURS: ENGINES["ctranslate2"](ours)} | {
            name: ENGINES[engine](ours, kind) for name, (engine, kind) in OTHERS.items()
        }

    def mine(self, name: str) -> None:
        written = self.writers[name].generate(self.ids_BT, self.mask_BT, LONGEST, self.beam)
        self.texts[name] = [text.tokens for text in written]

    def peer(self) -> None:
        rows_BS = self.marian.generate(
            input_ids=self.ids_BT, attention_mask=self.mask_BT.long(), num_beams=self.beam, do_sample=False,
            max_new_tokens=LONGEST, length_penalty=1.0,
        )  # fmt: skip
        rows = rows_BS[:, 1:].tolist()
        self.texts[PEER] = [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]

    def equal(self, name: str) -> str:
        """How many texts are those of ``generate``."""
        pairs = list(zip(self.texts[name], self.texts[PEER], strict=True))
        return f"{sum(a == b for a, b in pairs)} of {len(pairs)}"

    def differences(self) -> list[dict[str, float]]:
        """Of every pair of texts that are not the same, how much the model in float64 prefers ours."""
        pairs = list(zip(self.texts[OURS], self.texts[PEER], strict=True))
        rows = [row for row, (a, b) in enumerate(pairs) if a != b]
        exact = copy.deepcopy(self.marian).double() if rows else None
        return [preference(exact, self.marian, self.ids_BT[[row]], *pairs[row]) for row in rows]


@torch.no_grad()
def preference(exact: Any, rounded: Any, ids_1T: Tensor, a: list[int], b: list[int]) -> dict[str, float]:
    """At the first word that differs: the logit of ``a``'s word minus that of ``b``'s in float64, and how far the same
    difference is from that in float32. Of the whole texts: the difference of log-probability per word, in float64.
    """
    place = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    exact_SV, rounded_SV = logits(exact, ids_1T, a), logits(rounded, ids_1T, a)
    gap = exact_SV[place, a[place]] - exact_SV[place, b[place]]
    other = rounded_SV[place, a[place]] - rounded_SV[place, b[place]]
    return {
        "first at word": place + 1,
        "logit gap": float(f"{gap:.2g}"),
        "rounding of that gap": float(f"{other - gap:.2g}"),
        "score gap": float(f"{score(exact, ids_1T, a) - score(exact, ids_1T, b):.2g}"),
    }


def logits(model: Any, ids_1T: Tensor, text: list[int]) -> Tensor:
    """Marian's, of every word of a text given the words before it."""
    read = torch.tensor([[BOS, *text[:-1]]])
    return model(input_ids=ids_1T, attention_mask=(ids_1T != PAD).long(), decoder_input_ids=read).logits[0].double()


def score(model: Any, ids_1T: Tensor, text: list[int]) -> float:
    """The mean log-probability of a text's words, by which a beam ranks."""
    log_p_SV = logits(model, ids_1T, text).log_softmax(-1)
    return float(log_p_SV[torch.arange(len(text)), torch.tensor(text)].mean())


def measure(ours: Any, marian: Any, batch: int, beam: int, repeats: int, rounds: int) -> dict[str, Any]:
    """Milliseconds a step of the longest text, the ratio, and whether the texts are the same."""
    torch.manual_seed(2)
    writers = Writers(ours, marian, random_pairs(Size(), batch, 24, 12).source_BT, beam)

    def repeated(write: Any, *given: str) -> Any:
        return lambda: [write(*given) for _ in range(repeats)]

    contenders = {name: repeated(writers.mine, name) for name in (OURS, *OTHERS)}
    times = interleave({**contenders, PEER: repeated(writers.peer)}, rounds)
    texts = writers.texts[OURS]
    steps = repeats * max(map(len, texts))
    return {
        "ms a step": {name: round(1000 * statistics.median(taken) / steps, 2) for name, taken in times.items()},
        "ours over generate": ratio(times, PEER),
        "engines over generate": {name: ratio(times, PEER, name) for name in OTHERS},
        "equal texts": {name: writers.equal(name) for name in (OURS, *OTHERS)},
        "differences": writers.differences(),
        "different words": len({word for text in texts for word in text}),
        "mean length": round(statistics.mean(map(len, texts)), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    ours, marian = same_weights(Size())
    results: dict[str, Any] = {}
    for ends, bias in END_BIAS.items():
        set_end(ours, marian, bias)
        for batch, beam, repeats in ((1, 1, 2), (64, 1, 1), (1, 4, 2), (64, 4, 1)):
            case = f"{ends}, batch {batch}, " + ("greedy" if beam == 1 else f"beam {beam}")
            rounds = given.rounds * (ALONE if batch == 1 else 1)
            results[case] = measure(ours, marian, batch, beam, repeats, rounds)
            print(case, results[case], flush=True)
    setting = f"d=256, ff 1024, 3+3 layers, 4 heads, V 8000, fp32; sources of 12 to 24 words, at most {LONGEST} written"
    counted = f"{given.rounds} rounds, {given.rounds * ALONE} of batch 1"
    report("decoding", "python benchmarks/decoding.py", f"{setting}; {counted}", results)


if __name__ == "__main__":
    main()
