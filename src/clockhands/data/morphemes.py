"""The closed list of morphemes of a corpus, and a tokenizer that cuts text into them and learns nothing.

A tokenizer that learns from made text learns its grammar: byte pairs of German numbers become "undvier" and
"zigtausend", which say where in the number they stood, so that their order is not needed any more. Morphemes say it
as little as words do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from clockhands.data.kinds import SPECIAL


@dataclass(frozen=True)
class Morphemes:
    """Roots, in any order, and texts that hold each root in every form that it can have.

    A form is a root with the space or hyphen before it and the punctuation after it: "nine", " nine" and "-nine" are
    three tokens.
    """

    roots: tuple[str, ...]
    texts: tuple[str, ...]

    def __add__(self, other: Morphemes) -> Morphemes:
        return Morphemes(self.roots + other.roots, self.texts + other.texts)


def find_roots(texts: Iterable[str], roots: Iterable[str]) -> tuple[str, ...]:
    """Return ``roots`` with further ones, so that all words of ``texts`` are made of them.

    What the known roots leave of the words becomes a root, the part with the most letters over all words first: of
    "einhundert" and "zweihundert", with "zwei" known, that is "hundert", and then "ein".
    """
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    forms = set(roots)
    while True:
        known = re.compile(_make_alternatives(forms))
        left = Counter(part for word in words for part in known.split(word) if part)
        if not left:
            return tuple(sorted(forms))
        forms.add(max(left, key=lambda part: (left[part] * len(part), part)))


def make_tokenizer(morphemes: Morphemes, special: Sequence[str], normalizer: Any) -> Tokenizer:
    """Return a tokenizer of the forms that occur in the texts of ``morphemes``, after the ``special`` tokens.

    Whatever else it reads is cut into single characters, which are unknown unless the texts have them too.
    """
    roots = {normalizer.normalize_str(root) for root in morphemes.roots}
    tokenizer = Tokenizer(models.WordLevel({}, unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizer
    # Not within brackets of its own: a space or hyphen, a root, punctuation; or any one character.
    form = rf"[\s\-]*(?:{_make_alternatives(roots)})[^\w\s\-]*|(?m:.)"
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(form), "isolated")
    tokenizer.decoder = decoders.Fuse()
    cut = map(tokenizer.pre_tokenizer.pre_tokenize_str, map(normalizer.normalize_str, morphemes.texts))
    forms = sorted({part for part, _ in chain.from_iterable(cut)} - set(special))
    tokenizer.model = models.WordLevel(
        {token: number for number, token in enumerate([*special, *forms])}, unk_token=SPECIAL["unk_token"]
    )
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def _make_alternatives(roots: Iterable[str]) -> str:
    """Return a pattern of all roots, the longest first: "siebzehn" before "sieb"."""
    return "|".join(map(re.escape, sorted(roots, key=lambda root: (-len(root), root))))
