"""Find the cause of a failing check: read where tokens stand and what they see in its calls, and mend it to be sure."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import CHECKS, TOLERANCE, difference
from clockhands.checking.fitting import biases
from clockhands.checking.fitting.calls import AttentionRead, Call, mixes_documents, replay
from clockhands.checking.fitting.compare import centre, find_factor, size_of
from clockhands.checking.fitting.places import PlainReading
from clockhands.checking.fitting.reading import (
    Key,
    attend_to_itself,
    carries_beside_attention,
    find_entries,
    find_seen,
    listen,
    moves_beside_attention,
)
from clockhands.checking.fitting.rotation import FittedRotation
from clockhands.checking.fitting.words import (
    Standing,
    count_keys,
    describe_other_rotation,
    describe_parts,
    describe_rotations,
    describe_seen,
    join,
    most,
)
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import TappedAttention

_GROUPS = ("causal", "order", "cache", "padding", "batch", "positions", "shift", "packing", "state", "length")
_KINDS = ("rotation", "angle", "place", "entry", "seen", "bias", "scale")  # as they are said
_DROPPED = ("seen", "scale", "bias", "place", "entry", "angle", "rotation")  # as each is tried to be left out
_TIMES = "those of the whole text"
_TEMPERATURE = "a temperature of another position"
_BY_LENGTH = "has a temperature that follows the number of tokens in the call"
_LOGITS = "has logits of attention"
_AS_FIRST = "is masked as the first row is"


def explain_check(subject: Subject, check: str) -> str:
    """Return why a check fails: what makes it pass if mended, or what passes beside attention; empty otherwise."""
    group = check.partition(".")[0]
    if group not in _GROUPS or subject.module is None:
        return ""
    try:
        audible = subject.copy_audible(subject.seed, subject.dtype) if subject.redraw else subject.copy_untouched()
        twin, ids = audible.copy_untouched(), audible.tokens(1, 8)
        if difference(twin.logits(ids), twin.logits(ids)) > TOLERANCE:  # what is drawn at random explains anything
            return ""
        said = ""
        with contextlib.suppress(Exception):  # a model may raise anything on a text of one token
            for by_column in (False, True):
                case = Case(audible, check, by_column)
                words = case.explain()
                if words and "the pads counted" not in words:
                    return words
                said = said or words
                if all(call.explicit or call.real_BT.all() for call in case.calls):
                    break
        if said:
            return said
        alone = replay(audible, CHECKS[check], (), lambda _: (lambda _, x: attend_to_itself(x), lambda *_: None))
        if alone.expected or alone.wanted or not subject.aligned:
            return ""
        if carries_beside_attention(audible):
            too = "attention sees other documents, and " if group == "packing" and mixes_documents(audible) else ""
            carried = "tokens reach each other beside attention, by a state, a convolution or a mean"
            return f"{too}{carried}: it fails too while each attends to itself alone"
        if group in ("shift", "padding") and moves_beside_attention(audible):
            return "a token that attends to itself alone changes with its place, as where values are rotated"
    except Exception:  # as above
        pass
    return ""


class Case:
    """One failing check of a subject: its calls, read, and mended; ``by_column``: pads are meant to have places too."""

    def __init__(self, subject: Subject, check: str, by_column: bool) -> None:
        self.subject, self.law, self.by_column = subject, CHECKS[check], by_column
        self.entries = find_entries(subject.copy_untouched())
        self.calls: list[Call] = []

        def keep(call: Call) -> tuple[Any, Any]:
            self.calls.append(call)
            return (lambda *_: None), (lambda *_: None)

        self.first = replay(subject, self.law, self.entries, keep, by_column)
        self.plain = PlainReading(subject, self.entries, torch.cat([call.ids_BT.flatten() for call in self.calls]))
        # Once a first state was met that is that of its token at no place, no key is known by its place.
        self.calls, self.strange = [], False
        self.crossed = False  # whether attention to a text that is padded, as a source, reads the pads
        replay(subject, self.law, self.entries, self._listen, by_column)
        none = torch.zeros(2 * [len(self.plain.tokens)], dtype=torch.bool, device=self.plain.tokens.device)
        self.gains: dict[int, Tensor] = {}
        """How many times as long the queries [B, S] of a reading are as those of their places, where that differs."""
        self.others: dict[
            tuple[Key, bool], FittedRotation
        ] = {}  # of queries, or keys, that are at no place of a plain text
        self.lost = {key: none.clone() for key in self.plain.layers}
        """Which tokens of a layer, by their rows in the plain text, lack the keys of which."""

    def _listen(self, call: Call) -> tuple[Any, Any]:
        """Read a call while every new token attends to its own key alone, wherever that is in the cache."""
        self.calls.append(call)

        def note(key: Key, attention: TappedAttention) -> Tensor:
            alone = attend_to_itself(attention, key in self.plain.sources)
            if key in self.plain.crossing:
                pads = ~call.real_BT[:, None, None]
                self.crossed |= bool((find_seen(attention.logits_BHST) & pads).any())
            if key not in self.plain.layers:
                return alone
            call.reads[key] = read = self.plain.read(call, key, attention, self.strange)
            own = read.column_BJ[:, None] == call.columns_S[:, None]
            first = own & (own.long().cumsum(-1) == 1)
            chosen = torch.where(first[:, None], 0.0, torch.finfo(alone.dtype).min).to(alone.dtype)
            return torch.where(own.any(-1)[:, None, :, None], chosen, alone)

        def keep(index: int, state: Tensor) -> None:
            if index == 0:
                call.states.append(state)
                call.strange.extend(self.plain.describe_state(self.subject.get_module(), call))
                self.strange |= bool(call.strange)

        return note, keep

    @cached_property
    def _mixing(self) -> str:
        """That the states that enter the first block depend on other tokens already; empty if they do not."""
        ids = self.subject.tokens(1, 12)

        def enter(text: Tensor) -> Tensor:
            states: dict[int, Tensor] = {}
            twin = self.subject.copy_untouched()
            listen(twin.get_module(), self.entries, 1, lambda *_: None, states.__setitem__, partial(twin.logits, text))
            return states[0]

        whole = enter(ids)
        for words, changed, rest in (("later", -1, slice(-1)), ("earlier", 0, slice(1, None))):
            other = ids.clone()
            other[:, changed] = self.subject.other(ids)[:, changed]
            if size_of((enter(other) - whole)[:, rest]) > 1e-4 * size_of(whole):
                return f"enters the first block with something of {words} tokens in it already"
        return ""

    def explain(self) -> str:
        """Return what is different in the calls, if the check passes with that mended; empty otherwise."""
        if any(call.derailed for call in self.calls):
            return ""
        if self.law.name == "positions.matter" and self.plain.is_placeless():
            return "first states, queries, keys and biases are the same at every place: no position enters"
        words = self._describe()
        kinds = [kind for kind in _KINDS if kind in words]
        if not kinds or self.first.expected:
            return ""
        # All together, else one alone: what was read of the others may be what other parts of the model do.
        sets = [kinds, *([kind] for kind in kinds)]
        kinds = next((some for some in sets if self._passes(frozenset(some))), [])
        if not kinds or self._passes(frozenset()):  # that logits are made anew must mend nothing
            return ""
        for kind in sorted(kinds, key=_DROPPED.index):
            fewer = frozenset(kinds) - {kind}
            if fewer and self._passes(fewer):
                kinds.remove(kind)
        return "; ".join(words[kind] for kind in kinds)

    def _describe(self) -> dict[str, str]:
        places: dict[tuple[str, str], list[tuple[str, bool, Standing]]] = defaultdict(list)
        seen: dict[str, list[tuple[Call, AttentionRead]]] = defaultdict(list)
        rest: dict[tuple[str, str], list[str]] = defaultdict(list)
        numbers = {key: f"in layer {number}" for number, key in enumerate(self.plain.layers, 1)}
        for call in self.calls:
            name = call.name(self.law.name)
            rest["entry", name] += [text for words in call.strange if (text := words or self._mixing)]
            for key, read in call.reads.items():
                for what, standing in self.plain.list_standings(call, key, read, self.calls):
                    if len(standing["meant"]):
                        places[name, what].append((numbers[key], call.undone, standing))
                seen[name].append((call, read))
                for kind, text in self._describe_logits(call, read):
                    rest[kind, name].append(text)
        texts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for (name, what), parts in places.items():
            if text := describe_parts(parts):
                texts["place"][f"{what} {text}".lstrip()].append(name)
        for name, reads in seen.items():
            said = [phrases for call, read in reads if (phrases := self._describe_seen(call, read))]
            if [_AS_FIRST] in said and any(phrases != [_AS_FIRST] for phrases in said):  # so by chance, in one of them
                said = [self._describe_seen(call, read, as_first=False) for call, read in reads]
            if sentences := [text for phrases in said for text in phrases]:
                texts["seen"][join(sentences)].append(name)
            for key in dict.fromkeys(read.key for _, read in reads):
                own = [call for call, read in reads if read.key == key]
                rest["angle", name] += self._describe_other_rotation(key, own)
        for (kind, name), sentences in rest.items():
            text = max(dict.fromkeys(sentences), key=sentences.count, default="")
            if kind == "angle":  # layers may have bases of their own
                text = " and ".join(dict.fromkeys(sentences))
            if len({words for words in sentences if words.endswith(_TIMES)}) > 1:
                text = "has ALiBi's slopes that follow the length of the text"
            if len({words for words in sentences if words.startswith(_LOGITS)}) > 1:
                text = f"{_LOGITS} of another scale, which follows the length"
            if text.endswith(_TEMPERATURE) and any(_BY_LENGTH in others for others in rest.values()):
                text = _BY_LENGTH
            if text:
                texts[kind][text].append(name)
        if self.crossed:
            texts["seen"]["the cross-attention reads the pads"].append("")
        words = {kind: " and ".join(map(_name_calls, by.values(), by)) for kind, by in texts.items()}
        for rotations in self.plain.rotations.values():
            if text := describe_rotations(*rotations):
                words["rotation"] = text
        if self.plain.across:
            words["rotation"] = "queries and keys are rotated across heads, before they are split into these"
        return words

    def _describe_other_rotation(self, key: Key, calls: Sequence[Call]) -> list[str]:
        """Say how new tokens that are at no place rotate otherwise than in a plain text."""
        said = {}
        for keys, plain in enumerate(self.plain.rotations[key]):
            if plain is None or not plain.rotates:
                continue
            if other := self.plain.fit_other_rotation(key, calls, bool(keys)):
                self.others[key, bool(keys)] = other
                said["with its keys " if keys else "with its queries "] = describe_other_rotation(other, plain)
        alike = len(said) == 2 and len(set(said.values())) == 1
        return [*said.values()][:1] if alike else [side + words for side, words in said.items()]

    def _describe_seen(self, call: Call, read: AttentionRead, as_first: bool = True) -> list[str]:
        """Say which keys are seen and should not be, or the other way round; what is not there at all is lost."""
        total = call.total
        slots = torch.nn.functional.one_hot(read.column_BJ + 1, total + 1)[..., 1:]
        counts = torch.einsum("bsj,bjt->bst", read.seen_BSJ.long(), slots)
        meant, real = self._meant(call), call.new_real_BS
        own = call.columns_S.expand(len(meant), -1)
        orphans = (read.seen_BSJ & (read.column_BJ < 0)[:, None])[real]
        order = read.column_BJ[(read.column_BJ >= 0).all(1)]
        if len(order) and (order.diff() < 0).any() and order.shape[1] == total:
            return ["has its keys in another order than they were read"]
        first = meant[:1].expand_as(meant)
        keyed = real & first.any(-1)  # a query without any key may be shown all
        told_apart = (meant & ~first)[keyed].any()
        if as_first and told_apart and torch.equal((counts > 0)[keyed], first[keyed]):
            return [_AS_FIRST]
        b, s, t = (meant & (counts == 0) & real[..., None] & (slots.sum(1) == 0)[:, None]).nonzero(as_tuple=True)
        rows = self.plain.rows(call.ids_BT)
        self.lost[read.key][rows[b, call.past + s], rows[b, t]] = True
        kept, documents = call.real_BT[:, None].expand_as(meant)[real], self.law.name.startswith("packing.")
        said = describe_seen(counts[real], meant[real], own[real], kept, documents)
        if strangers := most(orphans):
            said.append(f"sees {count_keys(strangers)} {self._find_origin(call, read)}")
        begun = call.real_BT[:, None] & (torch.arange(total, device=own.device) <= own[..., None] - call.past)
        if call.past and said and torch.equal((counts > 0)[real], begun[real]):
            return [f"{said[0]}: it is masked as if it began the text"]
        return said

    def _find_origin(self, call: Call, read: AttentionRead) -> str:
        b, j = (read.column_BJ < 0).nonzero()[0].tolist()
        vector, rows = read.attention.k_BHTK[b, :, j], torch.arange(len(self.plain.tokens))
        near = call.places_BT[b, min(j, call.places_BT.shape[1] - 1)].expand(len(rows))
        fits = {
            key: not self.plain.locate(key, True, vector.expand(len(rows), -1, -1), rows, near).isnan().all()
            for key in self.plain.layers
        }
        if fits[read.key]:
            return "of another row, or of tokens that were taken back"
        return "of another layer" if any(fits.values()) else "of no token"

    def _meant(self, call: Call) -> Tensor:
        """The keys [B, S, T] that new tokens are meant to see: those of the call, inside the window of a plain text."""
        plain = next(iter(self.plain.layers.values())).allowed_ST
        if self.subject.causal and int(plain[-1].sum()) == 1 and plain[0].all():  # the wrong way round
            plain = torch.ones_like(plain)
        # The first keys that every later query sees: where there is a window, its sinks.
        sinks = int((~(~plain).tril().any(0)).long().cumprod(0).sum()) % len(plain)
        columns = torch.arange(call.total, device=plain.device)
        back = (call.columns_S[:, None] - columns).clamp(min=0, max=len(plain) - 1)
        near = plain[-1, sinks:].flip(0)[back.clamp(max=len(plain) - sinks - 1)] & (back < len(plain) - sinks)
        return call.kept_BST & (near | (back == 0) | (call.places_BT < sinks)[:, None])

    def _describe_logits(self, call: Call, read: AttentionRead) -> Iterator[tuple[str, str]]:
        plain, rows = self.plain.layers[read.key].q_BHSK, self.plain.rows(call.ids_BT)[:, call.past :]
        places = call.new_places_BS.clamp(0, plain.shape[2] - 1)
        own_BHSK, q = plain[rows, :, places].transpose(1, 2), read.attention.q_BHSK.double()
        factors = (q * own_BHSK).sum(-1) / own_BHSK.square().sum(-1)
        fits = (q - factors[..., None] * own_BHSK).abs().amax((1, 3)) < 1e-3 * size_of(own_BHSK)
        gains = torch.where(fits & call.new_real_BS, factors.mean(1), 1.0)
        if size_of(gains - 1) > 2e-3 and float((factors - factors[:, :1]).abs().amax(1)[fits].max()) < 1e-3:
            self.gains[id(read)] = gains
            times, new = float(gains.flatten()[gains.log().abs().argmax()]), gains[call.new_real_BS]
            throughout = call.new > 1 and size_of(new - new[0]) < 1e-3
            yield "scale", _BY_LENGTH if throughout else f"has queries {times:.4g} times as long: {_TEMPERATURE}"
        want, known = self.plain.find_bias(call, read)
        products, added = self.plain.split(read.key, read.attention)
        for b in call.real_BT.sum(1).argsort(descending=True).tolist():
            shown = known[b] & read.seen_BSJ[b] & call.new_real_BS[b, :, None]
            mine, wanted = torch.where(shown, added[b], 0.0), torch.where(shown, want[b], 0.0)
            if biases.differ(mine, wanted, shown):
                break
        else:
            return
        left, right = centre(mine - wanted, shown), centre(products[b], shown)
        more = find_factor(left, right, max(1.0, size_of(right)), 2e-3)
        if more is not None:
            yield "scale", f"{_LOGITS} {1 + more:.4g} times as large"
            return
        distances, text = self._name_distances(call, read, mine, shown, b), biases.describe_bias(mine, wanted, shown)
        # Of one query, or slopes, what is the bias of other distances may be another bias as well.
        if text := (distances or text) if call.explicit else (text or distances):
            yield "bias", text.replace("the reference's", _TIMES)

    def _name_distances(self, call: Call, read: AttentionRead, mine: Tensor, shown: Tensor, b: int) -> str:
        """Say which other distances give a bias the one that was added; empty if none that was tried does."""
        by_distance = self.plain.layers[read.key].bias_HST[:, :, 0]
        new, keys = call.columns_S, read.at_BJ[b]
        counted = "does not take its distances from the positions that are given"
        tried = {counted if call.explicit else "counts what is masked in its distances": new}
        if call.past:
            tried["measures its distances as if it began the text"] = new - call.past
        for words, queries in tried.items():
            ahead = keys - queries[:, None]
            for back in (-ahead, ahead.abs()):  # of a key ahead of its query the bias is that of 0, or of as far behind
                wanted = by_distance[:, back.clamp(0, by_distance.shape[1] - 1)]
                if not biases.differ(mine, torch.where(shown, wanted, 0.0), shown):
                    return words
        return ""

    def _passes(self, kinds: frozenset[str]) -> bool:
        """Whether the check passes with differences of these kinds mended in its calls."""
        before = iter(self.calls)

        def mend(call: Call) -> tuple[Any, Any]:
            reads = next(before).reads

            def logits(key: Key, attention: TappedAttention) -> Tensor | None:
                if key in self.plain.crossing and "seen" in kinds:
                    lowest = torch.finfo(attention.logits_BHST.dtype).min
                    return attention.logits_BHST.masked_fill(~call.real_BT[:, None, None], lowest)
                return self._mend(call, reads[key], attention, kinds) if key in reads else None

            def state(index: int, seen: Tensor) -> Tensor | None:
                if index == 0:
                    return self._mend_state(call, seen) if kinds & {"place", "entry"} else None
                source = self.plain.source_1SD if "entry" in kinds else None
                return None if source is None or source.shape[1:] != seen.shape[1:] else source.expand_as(seen)

            return logits, state

        measured = replay(self.subject, self.law, self.entries, mend, self.by_column)
        return measured.expected and (measured.wanted or measured.size <= max(TOLERANCE, self.first.size / 100))

    def _mend_state(self, call: Call, seen: Tensor) -> Tensor | None:
        table = self.plain.entry_NPD
        if table is None:
            return None
        places, rows = call.new_places_BS, self.plain.rows(call.ids_BT[:, call.past :])
        near = places.clamp(0, self.plain.length - 1)
        fits, wanted = call.new_real_BS & (near == places) & (rows >= 0), table[rows, near].to(seen.dtype)
        moved = (wanted - seen).abs().amax(-1) > 1e-4 * size_of(table)
        return torch.where((fits & moved)[..., None], wanted, seen)

    def _mend_rotation(
        self, call: Call, read: AttentionRead, attention: TappedAttention, kinds: frozenset[str]
    ) -> list[Tensor]:
        """Return the queries and the keys of an attention, rotated as they are meant to be."""
        pair, across, mended = self.plain.rotations[read.key], self.plain.across.get(read.key), []
        both = [rotation for rotation in pair if rotation is not None]
        meant = (call.new_places_BS, call.places_BT.gather(1, read.at_BJ))
        sides = zip(pair, meant, (read.stood_q_BS, read.stood_k_BJ), (attention.q_BHSK, attention.k_BHTK), strict=True)
        for side, (own, places, stood, vectors) in enumerate(sides):
            x, other = vectors.double(), self.others.get((read.key, side == 1))
            if "place" in kinds and own is not None and own.rotates:
                x = own.move(x, torch.nan_to_num(places - stood))
            if "angle" in kinds and own is not None and other is not None:
                x = torch.where(stood.isnan()[:, None, :, None], _exchange(x, places, other, own), x)
            if "rotation" in kinds and own is not None and len(both) == 2:
                right = both[0] if both[0].count else both[1]
                x = _exchange(x, places, own, replace(right, second_SC=right.first_SC))
            if "rotation" in kinds and across is not None:  # rotated before they were split into heads
                joined = _exchange(x.transpose(1, 2).flatten(2)[:, None], places, across[side])[:, 0]
                x = joined.unflatten(2, (-1, x.shape[-1])).transpose(1, 2)
            mended.append(x)
        return mended

    def _mend(self, call: Call, read: AttentionRead, attention: TappedAttention, kinds: frozenset[str]) -> Tensor:
        q, k = self._mend_rotation(call, read, attention, kinds)
        want, inside = self.plain.find_bias(call, read)
        _, added = self.plain.split(read.key, attention)
        if "scale" in kinds and id(read) in self.gains:
            q = q / self.gains[id(read)][:, None, :, None]
        if "scale" in kinds or "bias" in kinds:
            added = torch.where(inside[:, None], want, added)
        allowed = read.seen_BSJ
        if "seen" in kinds:
            meant = self._meant(call).gather(2, read.at_BJ[:, None].expand(-1, call.new, -1))
            twice = (read.column_BJ[:, :, None] == read.column_BJ[:, None]).tril(-1).any(-1)
            allowed = meant & (read.column_BJ >= 0)[:, None] & ~twice[:, None]
            added = torch.where((allowed & ~read.seen_BSJ)[:, None], want, added)
            rows = self.plain.rows(call.ids_BT)
            allowed = allowed & ~self.lost[read.key][rows[:, call.past :, None], rows.gather(1, read.at_BJ)[:, None]]
        logits = (self.plain.layers[read.key].scale * (q @ k.mT) + added).to(attention.logits_BHST.dtype)
        logits = logits.masked_fill(~allowed[:, None], torch.finfo(logits.dtype).min)
        return torch.where(call.new_real_BS[:, None, :, None], logits, attention.logits_BHST)


def _exchange(x_BHSK: Tensor, places_BS: Tensor, back: FittedRotation, to: FittedRotation | None = None) -> Tensor:
    maps = torch.linalg.inv(back.matrices(places_BS))
    return torch.einsum("bsij,bhsj->bhsi", maps if to is None else to.matrices(places_BS) @ maps, x_BHSK)


def _name_calls(names: Sequence[str], text: str) -> str:
    """Begin a sentence with its calls, unless it has a beginning; what every text does is not said of pieces again."""
    calls = "a text" if "a text" in names else " and ".join(dict.fromkeys(names))
    return text if text.startswith("the ") else f"{calls} {text}"
