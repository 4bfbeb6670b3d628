"""Measure what the four parts of an attention score do in “Tom bit a dog”, and keep it in docs/studies/parts.json.

    python docs/tools/answers/parts.py [FOLDER]

Without FOLDER fifty readers of one head are trained, about eight minutes of one core. FOLDER holds five translators of
parts-translator.toml, one for each seed (FOLDER/1 to FOLDER/5); one that is missing is trained there first, half a
minute each. The seeds are the sample of all intervals. Those of the heads' shares hold at 95 % together, as do those of
their differences of scores, and those of the translators' shares (Bonferroni; Dunn 1961). A verdict is *more* or *less*
where such an interval leaves out a guess, no difference, or what all four parts reach.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from exact.parts import PARTS, TWINS, Reader, encode, measure_right, train_reader
from scipy import stats

from clockhands.comparison.statistics.paired import ALPHA
from clockhands.data import open_corpus
from clockhands.files import write_text
from clockhands.generation import translate
from clockhands.runs import Run
from clockhands.studies.answer import format_interval
from clockhands.training import train

HERE = Path(__file__).parents[2] / "studies"
KEPT = HERE / "parts.json"
RECIPE = HERE / "parts-translator.toml"
SEEDS = (1, 2, 3, 4, 5)
GUESSED = 50.0
"""Percent right of a guess between the two who take part."""
WHOLE, NONE = "all four", "none"


def measure_readers() -> dict[str, Any]:
    """Train readers of all four parts, and of one alone, and return what each tells."""
    right: dict[str, list[float]] = {}
    preferred: dict[str, list[tuple[float, float]]] = {}
    for seed in SEEDS:
        for name, parts in {WHOLE: PARTS, **{part: (part,) for part in PARTS}}.items():
            for moved in (False, True):
                reader = train_reader(parts, seed, moved=moved)
                key = f"{name}, moved" if moved else name
                right.setdefault(key, []).append(measure_right(reader, moved=moved))
                print(seed, key, right[key][-1], flush=True)
                if name == WHOLE and not moved:
                    for part, (first, second) in read_twins(reader).items():
                        preferred.setdefault(part, []).append((first[0] - first[3], second[3] - second[1]))
    kept: dict[str, Any] = {}
    alpha = ALPHA / len(right)
    for key, values in right.items():
        kept[f"right, {key}"] = format_interval(values, 1, most=100.0, alpha=alpha)
        kept[f"right, {key}, verdict"] = judge([value - GUESSED for value in values], alpha)
    alpha = ALPHA / (2 * len(preferred))
    for part, pairs in preferred.items():
        for sentence, values in zip(("Tom bit", "dog bit"), zip(*pairs, strict=True), strict=True):
            kept[f"Tom over dog, {part}, {sentence}"] = format_interval(values, 2, sign="+", alpha=alpha)
            kept[f"Tom over dog, {part}, {sentence}, verdict"] = judge(values, alpha)
    return kept


@torch.no_grad()
def read_twins(reader: Reader) -> dict[str, list[list[float]]]:
    """Return of each part, and of their sum, the scores of the verb with the four words of both sentences."""
    terms = {part: scores_NT[:, :4] for part, scores_NT in reader.score(encode(TWINS)).items()}
    terms[WHOLE] = torch.stack(list(terms.values())).sum(0)
    return {part: scores_N4.tolist() for part, scores_N4 in terms.items()}


def judge(values: Collection[float], alpha: float) -> str:
    """Return whether the mean of values over seeds is above 0, below it, or not shown to be either at 1 - α."""
    row = torch.tensor(list(values), dtype=torch.float64)
    reach = float(stats.t.ppf(1 - alpha / 2, len(row) - 1)) * float(row.std()) / len(row) ** 0.5
    return "more" if row.mean() > reach else "less" if row.mean() < -reach else "undecided"


def measure_translators(folder: Path) -> dict[str, Any]:
    """Return how many sentences translators get right with parts of the scores of their encoders left out."""
    sets = {WHOLE: PARTS, NONE: (), **{f"without {part}": [p for p in PARTS if p != part] for part in PARTS}}
    right: dict[str, list[float]] = {}
    twins: dict[str, int] = dict.fromkeys(sets, 0)
    for seed in SEEDS:
        run = open_translator(folder, seed)
        pairs = open_corpus(run.recipe.corpus, **run.recipe.corpus_options).splits["test"]
        for name, parts in sets.items():
            with keep_parts(run, parts):
                written = [text.text for text in translate(run, [pair.source for pair in pairs])]
                both = [text.text for text in translate(run, [sentence.to_pair().source for sentence in TWINS])]
            right.setdefault(name, []).append(
                100 * sum(text == pair.target for text, pair in zip(written, pairs, strict=True)) / len(pairs)
            )
            twins[name] += both == [sentence.to_pair().target for sentence in TWINS]
        print(seed, {name: values[-1] for name, values in right.items()}, flush=True)
    kept: dict[str, Any] = {"seeds": len(SEEDS), "test items": len(pairs)}
    for name, values in right.items():
        kept[f"right, {name}"] = format_interval(values, 1, most=100.0, alpha=ALPHA / len(right))
        kept[f"twins right, {name}"] = twins[name]
        kept[f"{name}, verdict"] = judge(
            [a - b for a, b in zip(values, right[WHOLE], strict=True)], ALPHA / (len(right) - 1)
        )
    return kept


def open_translator(folder: Path, seed: int) -> Run:
    """Open a translator, trained where it is missing."""
    path = folder / str(seed)
    if not (path / "config.json").is_file():
        overrides = {"training.seed": seed, "position.seed": seed}
        train(RECIPE, path, overrides=overrides, overwrite=True, draw=False, progress=True)
    return Run.from_folder(path)


@contextmanager
def keep_parts(run: Run, parts: Collection[str]) -> Iterator[None]:
    """Inside the block, scores of the encoder's only layer have some of their four parts.

    It has post-norm, so that its input is the sum of word and position and nothing else.
    """
    encoder: Any = run.model.eval().transformer.encoder
    attention, places = encoder.blocks[0].attention, {}
    hook = encoder.input.register_forward_pre_hook(lambda _, args: places.update(e=args[1]))

    def attend(x_BSD: torch.Tensor, context: Any) -> torch.Tensor:
        places_BSD = places["e"].to(x_BSD.dtype).expand_as(x_BSD)
        halves = [attention.qkv.project_heads(half, attention.head_dim) for half in (x_BSD - places_BSD, places_BSD)]
        terms = dict(zip(PARTS, (query[0] @ key[1].mT for query in halves for key in halves), strict=True))
        scores = sum((terms[part] for part in parts), torch.zeros_like(terms[PARTS[0]]))
        scores = scores * attention.choose_scale(context.scheme)
        if context.placement.mask_BHSM is not None:
            scores = scores.masked_fill(~context.placement.mask_BHSM, float("-inf"))
        value = attention.qkv.project_heads(x_BSD, attention.head_dim)[2]
        return attention.join_heads(scores.softmax(-1) @ value)

    attention.forward = attend
    try:
        yield
    finally:
        del attention.forward
        hook.remove()


def main() -> None:
    """Measure the readers, or with a folder the translators, and keep that."""
    torch.set_num_threads(1)
    kept = json.loads(KEPT.read_text("utf8")) if KEPT.is_file() else {}
    if sys.argv[1:]:
        kept["parts-translator"] = measure_translators(Path(sys.argv[1]))
    else:
        kept["parts"] = measure_readers()
    write_text(KEPT, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
