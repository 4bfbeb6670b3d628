"""Decoding of 200 sentences of Multi30k by briefly trained translators: our default beside two others.

    python benchmarks/decoding_sentences.py FOLDER     # which holds train.de, train.en, test_2016_flickr.de

A translator with the paper's scheme and one with RoPE are trained for some minutes, so that texts end by themselves.
``clockhands``: the engine that ``translate`` takes by default, as it is called for every batch. ``generate``:
``model.generate`` of transformers with the same model. ``ctranslate2``: ``Translator.translate_batch`` of the model as
``generation.engines.ctranslate.save_model`` writes it. Each gets the same batches of token ids, sorted by length.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from timing import OURS, interleave, ratio, report
from torch import Tensor

from clockhands.data.datasets import encode_texts, pad
from clockhands.generation import Search
from clockhands.generation.engines.ctranslate import save_model
from clockhands.runs import Run
from clockhands.training import train

SCHEMES, CASES = ("sinusoidal", "rope"), ((1, 1), (64, 1), (1, 4), (64, 4))
SENTENCES, LONGEST = 200, 64


def train_translator(texts: Path, scheme: str, out: Path, steps: int) -> Run:
    """A small translator that has seen a part of Multi30k."""
    recipe: dict[str, Any] = {
        "data": {"corpus": "parallel", "source": str(texts / "train.de"), "target": str(texts / "train.en")},
        "tokenizer": {"vocabulary": 4000},
        "model": {"preset": "tiny", "d_model": 128, "d_ff": 512, "encoder_layers": 2, "decoder_layers": 2},
        "position": {"scheme": scheme},
        "training": {"max_steps": steps, "device": "cpu", "eval_steps": None, "threads": 1, "export": "last"},
    }
    return train(recipe, out, draw=False)


class Decoders:
    """Three ways to write the same texts, in batches."""

    def __init__(self, run: Run, lines: list[str], batch: int, beam: int, folder: Path) -> None:
        import ctranslate2
        import numpy as np

        rows = sorted(encode_texts(run.tokenizers.source, lines), key=len)
        groups = [rows[first : first + batch] for first in range(0, len(rows), batch)]
        pad_id = run.tokenizers.source.pad_token_id
        self.batches: list[tuple[Tensor, Tensor]] = []
        for group in groups:
            ids_BT, mask_BT = pad([np.asarray(row, np.int32) for row in group], pad_id)
            self.batches.append((ids_BT, mask_BT.bool()))
        self.words = [[list(map(str, row)) for row in group] for group in groups]
        self.run, self.beam, self.texts = run, beam, dict[str, list[list[int]]]()
        self.engine = Search(beam=beam).make_engine(run)
        save_model(run.model, folder)
        self.translator = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)

    def by_default(self) -> None:
        written = [self.engine.generate(ids_BT, mask_BT, LONGEST, self.beam) for ids_BT, mask_BT in self.batches]
        self.texts[OURS] = [text.tokens for texts in written for text in texts]

    def by_generate(self) -> None:
        model: Any = self.run.model
        end, texts = model.config.eos_token_id, []
        for ids_BT, mask_BT in self.batches:
            rows = model.generate(
                input_ids=ids_BT, attention_mask=mask_BT.long(), num_beams=self.beam, do_sample=False,
                max_new_tokens=LONGEST,
            )[:, 1:].tolist()  # fmt: skip
            texts += [row[: row.index(end) + 1] if end in row else row for row in rows]
        self.texts["generate"] = texts

    def by_ctranslate2(self) -> None:
        texts = []
        for words in self.words:
            written = self.translator.translate_batch(
                words, beam_size=self.beam, max_decoding_length=LONGEST, min_decoding_length=0, max_input_length=0,
                return_end_token=True,
            )  # fmt: skip
            texts += [[int(token) for token in result.hypotheses[0]] for result in written]
        self.texts["ctranslate2"] = texts

    def count_equal(self, name: str) -> str:
        """How many texts are those of ``generate``."""
        pairs = list(zip(self.texts[name], self.texts["generate"], strict=True))
        return f"{sum(a == b for a, b in pairs)} of {len(pairs)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = (given.texts / "test_2016_flickr.de").read_text(encoding="utf8").split("\n")[:SENTENCES]
    results: dict[str, Any] = {}
    setting = (
        f"d=128, ff 512, 2+2 layers, V 4000, fp32, {given.steps} steps of 64 pairs of Multi30k; {SENTENCES} sentences "
        f"of test_2016_flickr, at most {LONGEST} tokens; {given.rounds} interleaved rounds, CPU time, one thread"
    )
    with tempfile.TemporaryDirectory() as folder:
        for scheme in SCHEMES:
            run = train_translator(given.texts, scheme, Path(folder) / scheme, given.steps)
            for batch, beam in CASES:
                decoders = Decoders(run, lines, batch, beam, Path(folder) / f"{scheme}-{batch}-{beam}")
                ways = {OURS: decoders.by_default, "generate": decoders.by_generate}
                times = interleave({**ways, "ctranslate2": decoders.by_ctranslate2}, given.rounds, warmup=1)
                case = f"{scheme}, batch {batch}, " + ("greedy" if beam == 1 else f"beam {beam}")
                results[case] = {
                    "engine by default": type(decoders.engine).__name__,
                    "seconds": {name: round(sorted(taken)[len(taken) // 2], 2) for name, taken in times.items()},
                    "ours over generate": ratio(times, "generate"),
                    "ours over ctranslate2": ratio(times, "ctranslate2"),
                    "equal texts": {name: decoders.count_equal(name) for name in (OURS, "ctranslate2")},
                }
                print(case, results[case], flush=True)
                report("decoding_sentences", "python benchmarks/decoding_sentences.py FOLDER", setting, results)


if __name__ == "__main__":
    main()
