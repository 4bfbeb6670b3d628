"""Tasks on which length generalisation is studied: short to read, exact to answer, and of any length.

Those of the Chomsky-hierarchy suite (Delétang et al. 2022, "Neural Networks and the Chomsky Hierarchy", appendix A.1),
copying, sorting and decimal addition, and associative recall with several queries (MQAR; Arora et al. 2023, "Zoology").
A task draws strings and has an algorithm that answers them; symbols are words, so that a tokenizer of kind ``word`` has
one token for each. The loss and the score are those of the answer alone, which is the target.

On 2026-11-27 each solver here was compared with the authors' program for its task (the suite's at commits 2b8eb4b and
8084451 of its repository, Zoology's at dbcb60d): it gives the program's answers to 1,000 strings that the program drew,
and the program, made to draw 1,000 strings of ours, gives our answers. Copying, sorting of letters and decimal addition
have no such program. What is drawn and how an answer ends differs in these points:

- The suite ends stacks, binary sums and products with a token of termination and pads them with zeros; ours end with
  their last symbol. A stack keeps the token, as ``end``, since the answer of an empty one would be empty.
- The suite has something of every length, an arbitrary string where the task has none, and a token of padding behind a
  duplicate of odd length; here a task begins at its shortest string, and takes the next shorter one it has.
- In an equation every digit is equally likely to be x; in the suite, likelier the more other symbols stand before it.
- The suite trains on 1 to 40 symbols; here ``shortest`` and ``longest`` say it.
- Zoology's MQAR has 8,192 tokens and one text: key-value pairs, then the keys in places whose gaps follow a power law,
  random tokens between them, and each answer is predicted at its key. In ``recall`` a string has pairs, ``?`` and every
  key once in random order, of 64 keys and 64 values, and the target has the values in that order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from zlib import crc32

from clockhands.data.catalogue import corpus
from clockhands.data.corpora.algorithms.tasks import TASKS, Name, Task
from clockhands.data.population import Drawn, Pair, check_sentences
from clockhands.data.splits import Corpus
from clockhands.errors import UsageError
from clockhands.options import Count, Seed

__all__ = ["TASKS", "Name", "Task", "algorithms"]

PATIENCE, PARTS = 2_000, 10
"""Drawing stops after PATIENCE draws in a row that gave no new string. A hash divides all strings into PARTS parts: one
for the test split, one for validation, and the others for training."""


@corpus("algorithms", "translation", one_answer=True, tokenizer="word")
def algorithms(
    *,
    task: Name = "reverse",
    shortest: Count = 1,
    longest: Count = 20,
    beyond: tuple[int, ...] = (40, 80),
    train: Count = 20_000,
    validation: Count = 200,
    test: Count = 500,
    longer: Count = 200,
    seed: Seed = 0,
) -> Corpus:
    """Make strings and their answers: ``task`` says which; all lengths of the source are equally frequent.

    Strings of ``train``, ``validation`` and ``test`` have ``shortest`` to ``longest`` symbols, and none is in two of
    these splits; for every length of ``beyond`` there is a split of ``longer`` strings, named ``longer-40`` and so on.
    A task that has no string of a length takes the next shorter one it has.
    Raises UsageError for lengths out of order, and where there are too few different strings.
    """
    chosen = TASKS[task]
    least = max(shortest, chosen.shortest)
    _check_lengths(task, shortest, longest, beyond)
    check_sentences(
        "algorithms", {"train": train, "validation": validation, "test": test, "longer": longer * len(beyond)}
    )
    lengths = range(least, longest + 1)
    key = f"algorithms:{task}:{least}:{longest}:{seed}"
    rng = random.Random(key)

    def redraw(number: int) -> list[Pair]:
        other = random.Random(f"{key}:redrawn:{number}")
        return _draw_split(chosen, lengths, train, range(2, PARTS), other, repeat=True)

    splits = {
        "train": _draw_split(chosen, lengths, train, range(2, PARTS), rng, repeat=True),
        "validation": _draw_split(chosen, lengths, validation, range(1, 2), rng),
        "test": _draw_split(chosen, lengths, test, range(1), rng),
        **{f"longer-{length}": _draw_split(chosen, (length,), longer, range(PARTS), rng) for length in beyond},
    }
    populations = (Drawn(partial(chosen.draw_with_rearranged, lengths), "strings"),)
    description = f"{task} of {least} to {longest} symbols"
    return Corpus("algorithms", "translation", splits, description, populations=populations, redraw=redraw)


def _check_lengths(task: Name, shortest: int, longest: int, beyond: Sequence[int]) -> None:
    """Raise UsageError for lengths out of order."""
    begins = TASKS[task].shortest
    if longest < max(shortest, begins):
        raise UsageError(
            f"corpus 'algorithms': longest={longest}, but {task} begins at {begins} symbols, and shortest={shortest}"
        )
    if any(length <= longest for length in beyond):
        raise UsageError(f"corpus 'algorithms': beyond={list(beyond)} must be longer than longest={longest}")


def _draw_split(
    task: Task, lengths: Sequence[int], size: int, parts: range, rng: random.Random, *, repeat: bool = False
) -> list[Pair]:
    """Draw strings of these ``parts``, each once, or with ``repeat`` as often as it is drawn.

    A hash of the string decides its part, so that of the few short ones most are left for training.
    """
    pairs: list[Pair] = []
    seen: set[str] = set()
    misses = 0
    while len(pairs) < size and misses < PATIENCE:
        pair = task.make_pair(task.draw(rng.choice(lengths), rng))
        fits = crc32(pair.source.encode()) % PARTS in parts and (repeat or pair.source not in seen)
        misses = 0 if fits else misses + 1
        if fits:
            pairs.append(pair)
            seen.add(pair.source)
    if len(pairs) == size:
        return pairs
    raise UsageError(
        f"corpus 'algorithms': there are not {size:,} different strings of {min(lengths)} to {max(lengths)} symbols "
        f"for one split (only {len(pairs):,} were found); ask for fewer or for longer ones"
    )
