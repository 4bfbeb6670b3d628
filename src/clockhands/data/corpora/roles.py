"""Who did what to whom: English that says it by word order, Esperanto that says it by an ending.

"Tom bit a dog" and "a dog bit Tom" hold the same words. Their translations differ, "Tomo mordis hundon" and "hundo
mordis Tomon": the ending -n marks the one to whom it was done. Every sentence has its role-swapped twin in the same
split, so a reader that sees the words without their order is right at most half the time. Relative clauses make it
harder: "a dog that saw Tom" and "a dog that Tom saw", "hundo kiu vidis Tomon" and "hundo kiun Tomo vidis"; and a
place beside a noun ("a dog near the river bit Tom") moves who acts away from what is done.
Sentences start in lower case, or else the capital of "A" would give the order away.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from clockhands.data.population import Drawn, Pair, check_sentences
from clockhands.data.splits import Corpus, corpus
from clockhands.errors import UsageError
from clockhands.options import Count, Fraction, Seed

NAMES = {
    "Tom": "Tomo", "Anna": "Anna", "Peter": "Petro", "Maria": "Maria",
    "Paul": "Paŭlo", "Eva": "Eva", "Karl": "Karlo", "Sofia": "Sofia",
}  # fmt: skip
NOUNS = {
    "dog": "hundo", "cat": "kato", "horse": "ĉevalo", "wolf": "lupo", "bear": "urso", "bird": "birdo",
    "child": "infano", "teacher": "instruisto", "doctor": "kuracisto", "farmer": "farmisto", "sailor": "maristo",
    "baker": "bakisto", "king": "reĝo", "queen": "reĝino", "neighbour": "najbaro", "poet": "poeto",
}  # fmt: skip
ADJECTIVES = {"big": "granda", "small": "malgranda", "old": "maljuna", "young": "juna", "tired": "laca"}
VERBS = {
    "bit": "mordis", "saw": "vidis", "chased": "ĉasis", "helped": "helpis", "found": "trovis", "heard": "aŭdis",
    "called": "vokis", "followed": "sekvis", "loved": "amis", "kissed": "kisis", "painted": "pentris",
    "carried": "portis", "pushed": "puŝis", "watched": "rigardis", "admired": "admiris", "forgot": "forgesis",
}  # fmt: skip

PREPOSITIONS = {"near": "apud", "behind": "malantaŭ", "under": "sub", "inside": "en"}
PLACES = {
    "river": "rivero", "house": "domo", "bridge": "ponto", "tree": "arbo", "church": "preĝejo", "garden": "ĝardeno",
    "mill": "muelejo", "market": "bazaro",
}  # fmt: skip

REARRANGED = 100
"""How many rearrangements of a sentence are drawn, to count what else its words can mean."""


@dataclass(frozen=True)
class _Clause:
    """A relative clause of a noun: the noun did ``verb`` to ``other`` (``acts``), or ``other`` did it to the noun."""

    verb: str
    other: Phrase
    acts: bool


@dataclass(frozen=True)
class Phrase:
    """A participant: a name, or a noun with its article and perhaps an adjective, a place and a clause."""

    head: str
    article: str = ""
    adjective: str = ""
    place: tuple[str, str] | None = None
    clause: _Clause | None = None

    def in_english(self) -> str:
        """Return the words in English, where order alone tells the roles."""
        before = self.adjective or self.head
        # "an old dog", "a big dog": the article goes by the word after it.
        article = "an" if self.article == "a" and before[0] in "aeiou" else self.article
        words = [article, self.adjective, self.head]
        if self.place is not None:
            words += [self.place[0], "the", self.place[1]]
        if self.clause is not None:
            verb, other = self.clause.verb, self.clause.other.in_english()
            words += ["that", verb, other] if self.clause.acts else ["that", other, verb]
        return " ".join(word for word in words if word)

    def in_esperanto(self, *, acts: bool) -> str:
        """Return the words in Esperanto, as the one who acts, or the one to whom it is done."""
        ending = "" if acts else "n"
        head = NAMES.get(self.head) or NOUNS[self.head]
        adjective = ADJECTIVES[self.adjective] + ending if self.adjective else ""
        words = ["la" if self.article == "the" else "", adjective, head + ending]
        if self.place is not None:
            words += [PREPOSITIONS[self.place[0]], "la", PLACES[self.place[1]]]
        if self.clause is not None:
            verb, other = VERBS[self.clause.verb], self.clause.other.in_esperanto(acts=not self.clause.acts)
            words += ["kiu", verb, other] if self.clause.acts else ["kiun", other, verb]
        return " ".join(word for word in words if word)

    def phrases(self) -> Iterator[Phrase]:
        """Yield this phrase and those inside it, from the outside in."""
        yield self
        if self.clause is not None:
            yield from self.clause.other.phrases()


@dataclass(frozen=True)
class RoleSentence:
    """``agent`` did ``verb`` to ``patient``."""

    agent: Phrase
    verb: str
    patient: Phrase

    @property
    def swapped(self) -> RoleSentence:
        """The twin, whose roles are swapped."""
        return RoleSentence(self.patient, self.verb, self.agent)

    @property
    def phrases(self) -> list[Phrase]:
        """All participants."""
        return [*self.agent.phrases(), *self.patient.phrases()]

    def to_pair(self) -> Pair:
        """Return the sentence in both languages."""
        return Pair(
            f"{self.agent.in_english()} {self.verb} {self.patient.in_english()}",
            f"{self.agent.in_esperanto(acts=True)} {VERBS[self.verb]} {self.patient.in_esperanto(acts=False)}",
        )


@dataclass(frozen=True)
class Grammar:
    """How often a noun carries an adjective, a place and a clause, and how many clauses stand inside one another."""

    adjectives: float
    places: float
    clauses: float
    depth: int

    def draw(self, rng: random.Random) -> RoleSentence:
        """Draw a sentence; no two participants have the same head."""
        while True:
            verb = rng.choice(sorted(VERBS))
            sentence = RoleSentence(self._draw_phrase(rng, self.depth), verb, self._draw_phrase(rng, self.depth))
            heads = [phrase.head for phrase in sentence.phrases]
            if len(set(heads)) == len(heads):
                return sentence

    def _draw_phrase(self, rng: random.Random, depth: int) -> Phrase:
        if rng.random() < 0.4:
            return Phrase(rng.choice(sorted(NAMES)))
        head, article = rng.choice(sorted(NOUNS)), rng.choice(("a", "the"))
        adjective = rng.choice(sorted(ADJECTIVES)) if rng.random() < self.adjectives else ""
        place, clause = None, None
        if self.places and rng.random() < self.places:
            place = rng.choice(sorted(PREPOSITIONS)), rng.choice(sorted(PLACES))
        if self.clauses and depth and rng.random() < self.clauses:
            verb, acts = rng.choice(sorted(VERBS)), rng.random() < 0.5
            clause = _Clause(verb, self._draw_phrase(rng, depth - 1), acts)
        return Phrase(head, article, adjective, place, clause)

    def draw_with_rearranged(self, rng: random.Random) -> tuple[Pair, list[Pair]]:
        """Draw a sentence, and with it others in which the same words have other parts."""
        sentence = self.draw(rng)
        others = {sentence, *(rearrange(sentence, rng) for _ in range(REARRANGED))}
        return sentence.to_pair(), sorted((other.to_pair() for other in others), key=lambda pair: pair.source)


def rearrange(sentence: RoleSentence, rng: random.Random) -> RoleSentence:
    """Return a sentence in which the same words have other parts, drawn at random; it is as likely as the first.

    Participants, verbs, adjectives and places change their parts, and so do who acts in a clause and who is acted on.
    Only nouns have clauses, so a name is put where none was. In English it may come out as other words ("an old dog
    saw a big wolf", "an old wolf ...").
    """
    phrases = sentence.phrases
    nouns = [phrase for phrase in phrases if phrase.article]
    verbs = [sentence.verb, *(phrase.clause.verb for phrase in phrases if phrase.clause)]
    clauses = len(verbs) - 1
    verbs = rng.sample(verbs, len(verbs))
    parts = {
        name: rng.sample([getattr(noun, name) for noun in nouns], len(nouns))
        for name in ("article", "adjective", "place")
    }
    loose = [
        Phrase(noun.head, parts["article"][number], parts["adjective"][number], parts["place"][number])
        for number, noun in enumerate(nouns)
    ]
    carriers = [loose.pop(rng.randrange(len(loose))) for _ in range(clauses)]
    others = [*loose, *(phrase for phrase in phrases if not phrase.article)]
    rng.shuffle(others)
    left = iter(verbs[1:])

    def fill(slot: Phrase) -> Phrase:
        if slot.clause is None:
            return others.pop()
        clause = _Clause(next(left), fill(slot.clause.other), rng.random() < 0.5)
        return replace(carriers.pop(), clause=clause)

    agent, patient = (sentence.agent, sentence.patient)[:: rng.choice((1, -1))]
    return RoleSentence(fill(agent), verbs[0], fill(patient))


PATIENCE = 1000
"""Drawing stops after this many draws in a row that gave no new sentence: there are hardly any left."""


@corpus("roles", "translation", one_answer=True)
def roles(
    *,
    train: int = 10_000,
    validation: int = 500,
    test: int = 1_000,
    adjectives: Fraction = 0.3,
    places: Fraction = 0.0,
    clauses: Fraction = 0.0,
    depth: Count = 1,
    seed: Seed = 0,
) -> Corpus:
    """Make sentences of one verb and two participants, each beside its role-swapped twin.

    ``train``, ``validation`` and ``test`` count sentences and are even; no sentence is in two splits. Twins share the
    ``group`` of their pairs. ``adjectives``, ``places`` and ``clauses`` are the shares of nouns that carry one; an
    adjective agrees with its noun, so a reader without order does not know whom it describes either. Clauses stand
    inside one another up to ``depth``.
    Raises UsageError for an odd or impossible size.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    for name, size in sizes.items():
        if size < 2 or size % 2:
            raise UsageError(f"corpus 'roles': {name}={size}; sentences come in twins, give an even number from 2 on")
    check_sentences("roles", sizes)
    harder = f":{places}:{clauses}:{depth}" if places or clauses else ""
    key = f"roles:{adjectives}:{seed}{harder}"
    rng = random.Random(key)
    grammar = Grammar(adjectives, places, clauses, depth)
    twins = _draw_twins(sum(sizes.values()) // 2, grammar, rng)
    splits: dict[str, list[Pair]] = {}
    for name, size in sizes.items():
        splits[name] = _number_twins([twins.pop() for _ in range(size // 2)], rng)
    held_out = frozenset(pair.source for name in ("validation", "test") for pair in splits[name])

    def redraw(number: int) -> list[Pair]:
        other = random.Random(f"{key}:redrawn:{number}")
        return _number_twins(_draw_twins(train // 2, grammar, other, held_out), other)

    inside = ", with clauses" if clauses else ""
    description = f"who did what to whom, English to Esperanto{inside}; each sentence beside its role-swapped twin"
    populations = (Drawn(grammar.draw_with_rearranged, "sentences"),)
    return Corpus("roles", "translation", splits, description, populations=populations, redraw=redraw)


def _number_twins(twins: Sequence[tuple[Pair, Pair]], rng: random.Random) -> list[Pair]:
    pairs = [replace(sentence, group=number) for number, twin in enumerate(twins) for sentence in twin]
    rng.shuffle(pairs)
    return pairs


def _draw_twins(
    count: int, grammar: Grammar, rng: random.Random, held_out: frozenset[str] = frozenset()
) -> list[tuple[Pair, Pair]]:
    """Draw ``count`` different sentences with their twins; no two of them are the same set of sentences.

    None is ``held_out``.
    """
    drawn: dict[frozenset[str], tuple[Pair, Pair]] = {}
    misses = 0
    while len(drawn) < count and misses < PATIENCE:
        sentence = grammar.draw(rng)
        twin = sentence.to_pair(), sentence.swapped.to_pair()
        key = frozenset(pair.source for pair in twin)
        kept = key.isdisjoint(held_out)
        misses = 0 if kept and key not in drawn else misses + 1
        if kept:
            drawn[key] = twin
    if len(drawn) == count:
        return list(drawn.values())
    raise UsageError(
        f"corpus 'roles': there are not {2 * count:,} different sentences with adjectives={grammar.adjectives} "
        f"(only {2 * len(drawn):,} were found); ask for fewer or for more adjectives"
    )
