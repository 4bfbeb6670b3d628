"""Ask for relative places, and for places whose neighbours are alike; keep the answers in docs/studies/places.json.

    python docs/tools/answers/places.py    # about an hour of one core; what is kept already is not trained again

**Steps back.** A decoder of one head reads 24 random tokens that begin anywhere in 512 places, and must name the token
five steps back. Training leaves out every fourth stretch of 64 places: what works there, too, goes by the distance and
not by rows that were learned one by one.

**Neighbours.** The reader of ``exact/parts.py`` names who did it in sentences like “Tom bit a dog” that begin at a
random place. Its rows are random, and a row has a cosine of about ρ with the next, ρ² with the one after (an
autoregression of first order), so that nothing but the similarity of neighbours changes with ρ; no step is a rotation.
It learns from few sentences, or from many and is tested early and later.

The seeds are the sample of all intervals, which hold for all rows of one task together (Bonferroni; Dunn 1961), as do
the verdicts: whether a row is above the first of its kind (both waves; no similarity), seed by seed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from exact.parts import FURTHEST, LONGEST, PARTS, WIDTH, measure_right, train_reader
from kept import STUDY_PAGES
from parts import judge
from torch import nn
from torch.nn import functional as F

from clockhands.comparison.statistics.paired import ALPHA
from clockhands.files import write_text
from clockhands.schemes import Sinusoidal
from clockhands.shapes import Float, Int, Tensor
from clockhands.studies.answer import format_interval

KEPT = STUDY_PAGES / "places.json"
TRIALS = STUDY_PAGES / "places-trials.json"
SEEDS = range(10)
VOCABULARY, LENGTH, BACK = 32, 24, 5
PLACES, STRETCH = 512, 64
BATCH, STEPS, RATE = 64, 2000, 2e-3
CASES = (("both", 1), ("sine", 1), ("phases", 1), ("random", 1), ("both", 2), ("sine", 2))
"""What the rows are, and how many layers read them."""
ALIKE = (0.0, 0.5, 0.8, 0.9, 0.97, 0.99)
"""Cosines of neighbouring rows; that of the sinusoid of 512 channels is 0.97."""
READ = ((300, 300), (20_000, 40), (20_000, 120))
"""Sentences to learn from, and steps."""


def make_table(name: str, seed: int) -> Float[Tensor, "P D"]:
    """Return the rows of 512 places: ``both`` waves, ``sine`` alone, ``random`` vectors as long, or free ``phases``.

    With ``phases`` each wave of both begins at an angle of its own: a step is a linear map, and no rotation.
    """
    places = torch.arange(PLACES)[None]
    if name == "phases":
        return Sinusoidal(WIDTH, random_phases=True, seed=seed).encode(places)[0]
    if name != "random":
        return Sinusoidal(WIDTH, waves="both" if name == "both" else "sine").encode(places)[0]
    rows = torch.randn(PLACES, WIDTH, generator=torch.Generator().manual_seed(seed))
    return F.normalize(rows) * (WIDTH / 2) ** 0.5


class Decoder(nn.Module):
    """PyTorch's own pre-norm layers under a causal mask; rows of the table are added to the embeddings."""

    rows_PD: Tensor

    def __init__(self, layers: int, rows_PD: Tensor) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.register_buffer("rows_PD", rows_PD)
        layer = nn.TransformerEncoderLayer(WIDTH, 1, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.name = nn.Linear(WIDTH, VOCABULARY)
        for parameter in self.layers.parameters():  # nn.TransformerEncoder copies one layer, weights and all
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, ids_BT: Int[Tensor, "B T"], start_B: Int[Tensor, " B"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the token ``BACK`` steps back."""
        x_BTD = self.words(ids_BT) + self.rows_PD[start_B[:, None] + torch.arange(LENGTH)]
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        logits: Tensor = self.name(self.layers(x_BTD, mask=mask, is_causal=True))
        return logits


def measure_steps_back(name: str, layers: int, seed: int) -> tuple[float, float]:
    """Return the percentage right where places were trained on, and where they were left out."""
    starts = torch.arange(PLACES - LENGTH)
    left_out = torch.stack([(starts + end) // STRETCH % 4 == 3 for end in (0, LENGTH - 1)])
    trained_on, unseen = starts[~left_out.any(0)], starts[left_out.all(0)]
    torch.manual_seed(seed)
    model = Decoder(layers, make_table(name, seed))
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for _ in range(STEPS):
        ids, start = torch.randint(VOCABULARY, (BATCH, LENGTH)), trained_on[torch.randint(len(trained_on), (BATCH,))]
        loss = F.cross_entropy(model(ids, start)[:, BACK:].flatten(0, 1), ids[:, :-BACK].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        right = []
        for pool in (trained_on, unseen):
            ids, start = torch.randint(VOCABULARY, (1000, LENGTH)), pool[torch.randint(len(pool), (1000,))]
            right.append(100 * float((model(ids, start)[:, BACK:].argmax(-1) == ids[:, :-BACK]).float().mean()))
    return right[0], right[1]


def make_alike_rows(cosine: float, seed: int) -> Float[Tensor, "P D"]:
    """Return random rows as long as a sinusoid's, whose neighbours have about this cosine."""
    noise = torch.randn(LONGEST + FURTHEST, WIDTH, generator=torch.Generator().manual_seed(seed))
    rows = [noise[0]]
    for fresh in noise[1:]:
        rows.append(cosine * rows[-1] + (1 - cosine**2) ** 0.5 * fresh)
    return F.normalize(torch.stack(rows)) * (WIDTH / 2) ** 0.5


def read(cosine: float, count: int, steps: int, seed: int) -> float:
    """Train a reader whose neighbouring rows have this cosine, and return the percentage right of new sentences."""
    rows_PD = make_alike_rows(cosine, seed)
    return measure_right(train_reader(PARTS, seed, moved=True, steps=steps, count=count, rows_PD=rows_PD), moved=True)


def run_trials() -> dict[str, list[Any]]:
    """Train what is not kept yet, and keep each result as it comes."""
    trials: dict[str, list[Any]] = json.loads(TRIALS.read_text("utf8")) if TRIALS.is_file() else {}
    for seed in SEEDS:
        cases: dict[str, Callable[[], Any]] = {
            f"back, {name}, {layers}": partial(measure_steps_back, name, layers, seed) for name, layers in CASES
        }
        for cosine in ALIKE:
            for count, steps in READ:
                cases[f"alike {cosine:g}, {count} sentences, {steps} steps"] = partial(read, cosine, count, steps, seed)
        for name, measure in cases.items():
            if len(trials.setdefault(name, [])) <= seed:
                trials[name].append(measure())
                print(seed, name, trials[name][-1], flush=True)
                write_text(TRIALS, json.dumps(trials, indent=1, ensure_ascii=False) + "\n")
    return trials


def summarize(trials: dict[str, list[Any]]) -> dict[str, Any]:
    """Return means with their intervals over seeds, and whether rows are above the first of their kind, by seed."""
    right: dict[str, list[float]] = {}
    for name, values in trials.items():
        if name.startswith("back"):
            right[name] = [trained for trained, _ in values]
            right[f"{name}, unseen"] = [unseen for _, unseen in values]
        else:
            right[name] = values
    kept: dict[str, Any] = {"seeds": len(SEEDS)}
    for name, values in right.items():
        kind, layers = name.split(" ", 1)[0], re.sub("sine|phases|random", "both", name)
        first = layers if kind == "back," else f"alike 0, {name.split(', ', 1)[1]}"
        alpha = ALPHA / sum(other.startswith(kind) for other in right)
        kept[f"right, {name}"] = format_interval(values, 1, most=100.0, alpha=alpha)
        if name != first:
            kept[f"{name}, verdict"] = judge([x - y for x, y in zip(values, right[first], strict=True)], alpha)
    return kept


def main() -> None:
    """Train what is missing, and keep what all trials tell."""
    torch.set_num_threads(1)
    write_text(KEPT, json.dumps({"places": summarize(run_trials())}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
