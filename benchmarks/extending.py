"""What ``clockhands extend`` costs a model of ten million parameters: CPU time by part, and memory.

python benchmarks/extending.py [--whole | --memory]

Counted is how many tokens each part reads in texts of each length, with a model so small that this takes a minute or
two; measured is how long the large model takes for a token in texts of each length; the cost is their product. With
``--whole`` the large model does all of it, and the time of each part and the memory are measured. With ``--memory``
it reads the longest texts under every method, in batches as large as the command's, and is asked for facts in them:
the peak depends on the size of a batch, not on how many there are.

The weights are random, so every method passes the guard and none is better: recall is measured of all finalists, which
is the most that there can be to do. All three tasks count as learned.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import report
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from clockhands.attention.install import NAME
from clockhands.data.corpora.stdlib import NAMES, VALUES
from clockhands.extension import apply, choose_lengths, list_methods, measure
from clockhands.extension.choose import choose_method, cut_trial_texts
from clockhands.extension.methods import Method
from clockhands.extension.reading import measure_losses
from clockhands.extension.retrieval import TASKS, choose_writing, measure_retrieval
from clockhands.models import open_language_model

VOCABULARY, TRAINED, TIMES = 4096, 256, 8
SIZES = {"hidden_size": 320, "intermediate_size": 864, "num_hidden_layers": 7, "num_attention_heads": 5}


def save(folder: Path, sizes: dict[str, int]) -> int:
    """Save a Llama with random weights, and a tokenizer of words; return its parameters."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=TRAINED, tie_word_embeddings=True, **sizes
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    words = ["<unk>", "\n", "@", *NAMES, *VALUES]
    words += [f"w{number}" for number in range(VOCABULARY - len(words))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return sum(weight.numel() for weight in model.parameters())


class Counter:
    """A progress that charges CPU time, and the tokens that a model reads by length, to the part that was told last."""

    def __init__(self, model: Any) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.tokens: dict[str, Counts[tuple[str, int]]] = defaultdict(Counts)
        self.part, self.since = "", time.process_time()
        model.register_forward_pre_hook(self._hear, with_kwargs=True)

    def __call__(self, part: str, done: int, total: int) -> None:
        now = time.process_time()
        self.seconds[self.part] += now - self.since
        self.part, self.since = part, now

    def _hear(self, module: Any, given: Any, named: dict[str, Any]) -> None:
        ids_BS = named["input_ids"]
        kind = "ours" if module.config._attn_implementation == NAME else "its own"
        self.tokens[self.part][kind, ids_BS.shape[1]] += ids_BS.numel()


def extend(folder: Path) -> Counter:
    """Measure and choose as the command does, with its defaults."""
    model = open_language_model(folder, device="cpu")
    counter = Counter(model.model)
    stream = np.random.default_rng(0).integers(100, VOCABULARY, 200_000)
    longest = TIMES * TRAINED
    measure(model, stream, choose_lengths(TRAINED, longest), TRAINED, texts=32, items=60, progress=counter)
    choose_method(
        model, *np.array_split(stream, 2), TRAINED, longest, texts=32, items=60, evaluations=64, learned=TASKS,
        progress=counter,
    )  # fmt: skip
    counter("", 0, 1)
    return counter


def time_tokens(folder: Path, lengths: Sequence[int], scheme: dict[str, Any] | None = None) -> list[float]:
    """Return the CPU seconds that a model takes for a token in texts of each length, the least of two.

    ``scheme``: of our attention, laid over the model.
    """
    model = open_language_model(folder, device="cpu")
    with apply(model, Method("timed", "", scheme=scheme or {})) as laid:
        seconds = []
        for length in lengths:
            ids_NS = np.random.default_rng(0).integers(100, VOCABULARY, (max(1, 4096 // length), length))
            taken = []
            for _ in range(2):
                begun = time.process_time()
                measure_losses(laid, ids_NS, 16)
                taken.append((time.process_time() - begun) / ids_NS.size)
            seconds.append(min(taken))
    return seconds


def measure_memory(folder: Path) -> dict[str, Any]:
    """Return the peak after reading two of the longest texts, and asking ten questions there, under every method."""
    model = open_language_model(folder, device="cpu")
    before, longest = measure_peak(), TIMES * TRAINED
    stream = np.random.default_rng(0).integers(100, VOCABULARY, 50_000)
    texts_NS, tail = cut_trial_texts(model, stream, longest, 2)
    writing = choose_writing(model, stream, TRAINED, seed=0)
    for method in list_methods(model, TRAINED, longest):
        with apply(model, method) as laid:
            measure_losses(laid, texts_NS, tail)
            measure_retrieval(laid, stream, [longest], writing, items=10, seed=0)
    return {"peak, GB": measure_peak(), "of that before anything was read, GB": before}


def measure_peak() -> float:
    """Return the largest memory that this process had, in gigabytes."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)


def count_and_time(small: Path, large: Path) -> dict[str, Any]:
    """Return the cost of each part: tokens of each length, times the seconds of one."""
    counter, rungs = extend(small), [2**n for n in range(5, 12)]
    slow = {"scheme": "self-extend", "window": TRAINED // 4, "group": 2 * TIMES}
    seconds = {"its own": time_tokens(large, rungs), "ours": time_tokens(large, rungs, slow)}
    parts = {
        part: sum(n * float(np.interp(length, rungs, seconds[kind])) for (kind, length), n in counts.items())
        for part, counts in counter.tokens.items()
    }
    return {
        "CPU seconds of each part": {part: round(cost, 1) for part, cost in parts.items()},
        "tokens of each part": {part: sum(counts.values()) for part, counts in counter.tokens.items()},
        "tokens a second, by attention and length": {
            kind: {rung: round(1 / each) for rung, each in zip(rungs, costs, strict=True)}
            for kind, costs in seconds.items()
        },
        "CPU minutes in all": round(sum(parts.values()) / 60, 2),
    }


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name) / "small", Path(name) / "large"
        save(small, {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1})
        parameters = save(large, SIZES)
        if "--whole" in sys.argv:
            seconds = extend(large).seconds
            results: dict[str, Any] = {part: round(taken, 1) for part, taken in seconds.items()}
            results["CPU minutes in all"] = round(sum(seconds.values()) / 60, 2)
            results["peak, GB"] = measure_peak()
        elif "--memory" in sys.argv:
            results = measure_memory(large)
        else:
            results = count_and_time(small, large)
    size = f"Llama of {parameters / 1e6:.1f} million parameters"
    setting = f"{size}, float32, trained length {TRAINED}, to {TIMES}x, defaults, one thread"
    name = "extending_memory" if "--memory" in sys.argv else "extending"
    report(name, " ".join(["python benchmarks/extending.py", *sys.argv[1:]]), setting, results)


if __name__ == "__main__":
    main()
