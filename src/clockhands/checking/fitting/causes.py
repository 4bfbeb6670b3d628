"""Find the cause of a failing check: read where tokens stand and what they see in its calls, and mend it to be sure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import CHECKS, TOLERANCE
from clockhands.checking.fitting import biases
from clockhands.checking.fitting.compare import centre, find_factor
from clockhands.checking.fitting.places import Call, Plain, Read, replay, spread
from clockhands.checking.fitting.reading import Key, attend_to_itself, find_entries, find_seen
from clockhands.checking.fitting.words import (
    Standing,
    describe_places,
    describe_rotations,
    describe_seen,
    join,
    most,
)
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import Attention

_GROUPS = ("causal", "order", "cache", "padding", "batch", "positions", "shift", "packing", "state", "length")
_KINDS = ("rotation", "place", "entry", "seen", "bias", "scale")
_DROPPED = ("seen", "scale", "bias", "place", "entry", "rotation")
"""The kinds of differences, in the order in which they are said, and in which each is tried to be left out."""
_TIMES = "those of the whole text"


def explain_check(subject: Subject, check: str) -> str:
    """Return why a check of behaviour fails; empty of other checks, and where nothing that was read explains it.

    What is said is mended in the same calls, and said only if the check passes then.
    """
    if check.partition(".")[0] not in _GROUPS or subject.module is None or not subject.aligned:
        return ""
    audible = subject.copy_audible(subject.seed, subject.dtype) if subject.redraw else subject.copy_untouched()
    try:
        return Case(audible, check).explain()
    except Exception:  # a model may raise anything on a text of one token
        return ""


class Case:
    """One failing check of a subject: its calls, read, and mended."""

    def __init__(self, subject: Subject, check: str) -> None:
        self.subject, self.law = subject, CHECKS[check]
        self.entries = find_entries(subject.copy_untouched())[:1]
        self.calls: list[Call] = []

        def keep(call: Call) -> tuple[Any, Any]:
            self.calls.append(call)
            return (lambda *_: None), (lambda *_: None)

        self.first = replay(subject, self.law, self.entries, keep)
        self.plain = Plain(subject, self.entries, torch.cat([call.ids_BT.flatten() for call in self.calls]))
        self.calls, self.strange = [], False
        """Whether a first state was met that is that of its token at no place: no key is then known by its place."""
        replay(subject, self.law, self.entries, self._listen)
        self.lost_NN = torch.zeros(2 * [len(self.plain.tokens)], dtype=torch.bool, device=self.plain.tokens.device)
        """Which tokens, by their rows in the plain text, lack the keys of which."""

    def _listen(self, call: Call) -> tuple[Any, Any]:
        """Read a call while every new token attends to its own key alone, wherever that is in the cache."""
        self.calls.append(call)

        def note(key: Key, attention: Attention) -> Tensor:
            alone = attend_to_itself(attention)
            if key not in self.plain.layers:
                return alone
            call.reads[key] = read = self._read(call, key, attention)
            columns = torch.arange(call.ids_BT.shape[1], device=alone.device)[call.is_new]
            own = read.column_BJ[:, None] == columns[:, None]
            first = own & (own.long().cumsum(-1) == 1)
            chosen = torch.where(first[:, None], 0.0, torch.finfo(alone.dtype).min).to(alone.dtype)
            return torch.where(own.any(-1)[:, None, :, None], chosen, alone)

        def keep(_: int, state: Tensor) -> None:
            call.states.append(state)
            self.strange |= bool(self.plain.describe_state(self.subject.get_module(), call))

        return note, keep

    def _read(self, call: Call, key: Key, attention: Attention) -> Read:
        """Find the places of queries and keys, and the column of each key.

        That of the token that should stand there, else of any of the row.
        """
        rows, places, new = self.plain.rows(call.ids_BT), call.places_BT, call.is_new
        queries, keys_BJHK = attention.q_BHSK.transpose(1, 2).flatten(0, 1), attention.k_BHTK.transpose(1, 2)
        stood_q = self.plain.locate(key, False, queries, rows[:, new].flatten(), places[:, new].flatten())
        count, total = keys_BJHK.shape[1], rows.shape[1]
        numbers = torch.arange(count, device=rows.device)
        right = -1
        for start in (0, total - count) if count < total else (0,):  # a cache that keeps the last of a window
            begun = (numbers + start).clamp(max=total - 1).expand(len(rows), -1).clone()
            near = places.gather(1, begun)
            stood = self.plain.locate(
                key, True, keys_BJHK.flatten(0, 1), rows.gather(1, begun).flatten(), near.flatten()
            ).view(near.shape)
            if (hits := int((stood == near).sum())) > right:
                column, stood_k, right = begun, stood, hits
        rotation = self.plain.rotations[key][1]
        for b, j in (stood_k.isnan() | (numbers >= total)).nonzero().tolist():
            stands = self.plain.locate(key, True, keys_BJHK[b, j].expand(total, -1, -1), rows[b], places[b])
            known = (~stands.isnan()).nonzero().flatten()
            if len(known):
                nearest = known[(stands[known] - places[b, known]).abs().argmin()]
                column[b, j], stood_k[b, j] = nearest, stands[nearest]
                continue
            # At no known place it may still be its token's key if a state is strange, or its place was not read.
            readable = j >= total or 0 <= int(places[b, j]) < self.plain.length
            readable |= rotation is not None and rotation.rotates
            column[b, j] = j if j < total and (self.strange or not readable) else -1
        seen = find_seen(attention.logits_BHST.double()).any(1)
        return Read(key, attention, column, stood_q.view(len(rows), -1), stood_k, seen)

    def explain(self) -> str:
        """Return what is different in the calls, if the check passes with that mended; empty otherwise."""
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
        """Return what differs, by kind, in words."""
        places: dict[tuple[str, str], list[Standing]] = defaultdict(list)
        seen: dict[str, list[str]] = defaultdict(list)
        rest: dict[tuple[str, str], list[str]] = defaultdict(list)
        for call in self.calls:
            name = self._name(call)
            if strange := self.plain.describe_state(self.subject.get_module(), call):
                rest["entry", name].append(strange)
            for key, read in call.reads.items():
                for what, standing in self._place(call, key, read):
                    if len(standing["meant"]):
                        places[name, what].append(standing)
                seen[name] += self._describe_seen(call, read)
                for kind, words in self._describe_logits(call, read):
                    rest[kind, name].append(words)
        texts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for (name, what), parts in places.items():
            known = set.intersection(*(set(part) for part in parts))
            if text := describe_places({label: torch.cat([part[label] for part in parts]) for label in known}):
                texts["place"][f"{what} {text}".lstrip()].append(name)
        for name, sentences in seen.items():
            if sentences:
                texts["seen"][join(sentences)].append(name)
        for (kind, name), sentences in rest.items():
            text = max(dict.fromkeys(sentences), key=sentences.count)
            if len({words for words in sentences if words.endswith(_TIMES)}) > 1:
                text = "has ALiBi's slopes that follow the length of the text"
            texts[kind][text].append(name)
        said = {kind: " and ".join(map(_name_calls, by.values(), by)) for kind, by in texts.items()}
        for rotations in self.plain.rotations.values():
            if text := describe_rotations(*rotations):
                said["rotation"] = text
        return said

    def _name(self, call: Call) -> str:
        """Name a call as what is read in it."""
        pads, behind = (int((~real).long().cumprod(1).sum(1).max()) for real in (call.real_BT, call.real_BT.flip(1)))
        if call.cached and call.past:
            return "each decode step" if call.new == 1 else "each later chunk"
        if self.law.name.startswith("packing."):
            return "a packed text"
        if call.explicit:
            return "a text whose positions are given"
        if pads:
            return f"behind {pads} pads the text"
        if behind:
            return f"before {behind} pads the text"
        batched = len(call.ids_BT) > 1 and (self.law.name.startswith("batch.") or not call.real_BT.all())
        return "a row of a batch" if batched else "a text"

    def _place(self, call: Call, key: Key, read: Read) -> Iterator[tuple[str, Standing]]:
        """Yield where new tokens stand, by their first states or their queries and keys, and the keys of the cache.

        Nothing is yielded of an attention that is given no position: its keys are the same at every place.
        """
        plain = self.plain.layers[key].k_BHTK
        if spread(plain, 2) < 1e-4 * float(plain.abs().max()):
            return
        new, total = call.is_new, call.ids_BT.shape[1]
        real, meant = call.real_BT[:, new], call.places_BT[:, new]
        columns = torch.arange(total, device=meant.device)[new].expand_as(meant)
        own = read.column_BJ[:, None] == columns[..., None]
        keys = torch.where(own.any(-1), read.stood_k_BJ.gather(1, own.long().argmax(-1)), torch.nan)
        sides = {"with its queries": read.stood_q_BS, "with its keys": keys}
        if bool(((read.stood_q_BS - keys).abs() < 0.03)[real].all()):
            sides = {"": keys}
        table = self.plain.entry_NPD
        if call.states and table is not None and spread(table, 1) > 1e-4 * float(table.abs().max()):
            entry = self.plain.locate_states(call)
            sides = {"": entry} if bool((entry != meant)[real & ~entry.isnan()].any()) else sides
        counted = {
            "meant": meant,
            "index": real.long().cumsum(1) - 1,
            "past": torch.full_like(meant, call.past),
            "column": columns,
            "first": call.places_BT[:1, new].expand_as(meant),
            "longest": call.places_BT.amax(0)[new].expand_as(meant),
            "total": torch.full_like(meant, total),
            "length": torch.full_like(meant, self.plain.length),
        }
        if call.explicit:
            counted["default"] = (call.real_BT.long().cumsum(1) - 1).clamp(min=0)[:, new]
        for what, stood in sides.items():
            kept = real & ~stood.isnan()
            yield what, {name: x[kept] for name, x in {"stood": stood, **counted}.items()}
        then = torch.full(call.ids_BT.shape, torch.nan, dtype=torch.float64, device=meant.device)
        for earlier in self.calls:  # those in which the keys of the cache were new
            if key not in earlier.reads or not torch.equal(earlier.ids_BT, call.ids_BT[:, : earlier.ids_BT.shape[1]]):
                continue
            if earlier.ids_BT.shape[1] > call.past:
                continue
            before = earlier.reads[key]
            b, j = (before.column_BJ >= earlier.past).nonzero(as_tuple=True)
            then[b, before.column_BJ[b, j]] = before.stood_k_BJ[b, j]
        at = read.column_BJ.clamp(min=0)
        was, now = then.gather(1, at), read.stood_k_BJ
        old = (read.column_BJ >= 0) & call.real_BT.gather(1, at) & ~(was.isnan() | now.isnan())
        yield "with the keys of its cache", {"meant": was[old], "stood": now[old]}

    def _describe_seen(self, call: Call, read: Read) -> list[str]:
        """Say which keys are seen and should not be, or the other way round; what is not there at all is lost."""
        total, new = call.ids_BT.shape[1], call.is_new
        slots = torch.nn.functional.one_hot(read.column_BJ + 1, total + 1)[..., 1:]
        counts = torch.einsum("bsj,bjt->bst", read.seen_BSJ.long(), slots)
        meant, real = self._meant(call), call.real_BT[:, new]
        own = torch.arange(total, device=meant.device)[new].expand(len(meant), -1)
        orphans = (read.seen_BSJ & (read.column_BJ < 0)[:, None])[real]
        order = read.column_BJ[(read.column_BJ >= 0).all(1)]
        if len(order) and bool((order.diff() < 0).any()) and order.shape[1] == total:
            return ["has its keys in another order than they were read"]
        first = meant[:1].expand_as(meant)
        keyed = real & first.any(-1)  # a query without any key may be shown all
        if len(meant) > 1 and torch.equal((counts > 0)[keyed], first[keyed]) and bool((meant != first)[keyed].any()):
            return ["is masked as the first row is"]
        b, s, t = (meant & (counts == 0) & real[..., None] & (slots.sum(1) == 0)[:, None]).nonzero(as_tuple=True)
        rows = self.plain.rows(call.ids_BT)
        self.lost_NN[rows[b, call.past + s], rows[b, t]] = True
        kept, origin = call.real_BT[:, None].expand_as(meant)[real], self._find_origin(call, read)
        documents = self.law.name.startswith("packing.")
        return describe_seen(counts[real], meant[real], own[real], kept, documents, most(orphans), origin)

    def _find_origin(self, call: Call, read: Read) -> str:
        """Say whose the first key is that is none of its text's."""
        orphans = (read.column_BJ < 0).nonzero().tolist()
        if not orphans:
            return ""
        b, j = orphans[0]
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
        if self.subject.causal and int(plain[-1].sum()) == 1 and bool(plain[0].all()):  # the wrong way round
            plain = torch.ones_like(plain)
        columns = torch.arange(call.ids_BT.shape[1], device=plain.device)
        back = (columns[call.is_new, None] - columns[None]).clamp(min=0, max=len(plain) - 1)
        return call.kept_BST & (plain[-1].flip(0)[back] | (back == 0))

    def _describe_logits(self, call: Call, read: Read) -> Iterator[tuple[str, str]]:
        """Say how a scale or a bias is another than in a plain text."""
        b = int(call.real_BT.sum(1).argmax())
        want, known = self._find_bias(call, read)
        shown = known[b] & read.seen_BSJ[b] & call.real_BT[b, call.is_new][:, None]
        products, added = self._split(read.key, read.attention)
        mine, wanted = torch.where(shown, added[b], 0.0), torch.where(shown, want[b], 0.0)
        if not biases.differ(mine, wanted, shown):
            return
        left, right = centre(mine - wanted, shown), centre(products[b], shown)
        if find_factor(left, right, max(1.0, float(right.abs().max())), 2e-3) is not None:
            yield "scale", "has logits of attention of another scale, which follows the length"
        elif text := biases.describe_bias(mine, wanted, shown):
            yield "bias", text.replace("the reference's", _TIMES)

    def _split(self, key: Key, attention: Attention) -> tuple[Tensor, Tensor]:
        """Return the products of queries and keys at the scale of a plain text, and what the logits are beyond them."""
        products = self.plain.layers[key].scale * attention.q_BHSK.double() @ attention.k_BHTK.double().mT
        return products, attention.logits_BHST.double() - products

    def _find_bias(self, call: Call, read: Read) -> tuple[Tensor, Tensor]:
        """The bias [B, H, S, J] that keys have in a plain text, and where it is known."""
        bias = self.plain.layers[read.key].bias_HST
        q, k = call.places_BT[:, call.is_new], call.places_BT.gather(1, read.column_BJ.clamp(min=0))
        known = (q[..., None] < len(bias[0])) & (k[:, None] < len(bias[0]))
        if self.subject.causal:
            known = known & (q[..., None] >= k[:, None]) & (read.column_BJ >= 0)[:, None]
        top = len(bias[0]) - 1
        return bias[:, q.clamp(0, top)[..., None], k.clamp(0, top)[:, None]].transpose(0, 1), known

    def _passes(self, kinds: frozenset[str]) -> bool:
        """Whether the check passes with differences of these kinds mended in its calls."""
        before = iter(self.calls)

        def mend(call: Call) -> tuple[Any, Any]:
            reads = next(before).reads

            def logits(key: Key, attention: Attention) -> Tensor | None:
                return self._mend(call, reads[key], attention, kinds) if key in reads else None

            def state(_: int, seen: Tensor) -> Tensor | None:
                return self._mend_state(call, seen) if kinds & {"place", "entry"} else None

            return logits, state

        measured = replay(self.subject, self.law, self.entries, mend)
        return measured.expected and (measured.wanted or measured.size <= max(TOLERANCE, self.first.size / 100))

    def _mend_state(self, call: Call, seen: Tensor) -> Tensor | None:
        table = self.plain.entry_NPD
        if table is None:
            return None
        places, rows = call.places_BT[:, call.is_new], self.plain.rows(call.ids_BT[:, call.is_new])
        fits = call.real_BT[:, call.is_new] & (places < self.plain.length) & (places >= 0) & (rows >= 0)
        wanted = table[rows, places.clamp(0, self.plain.length - 1)].to(seen.dtype)
        moved = (wanted - seen).abs().amax(-1) > 1e-4 * table.abs().max()
        return torch.where((fits & moved)[..., None], wanted, seen)

    def _mend(self, call: Call, read: Read, attention: Attention, kinds: frozenset[str]) -> Tensor:
        """Return the logits of an attention with differences of these kinds mended."""
        new, at = call.is_new, read.column_BJ.clamp(min=0)
        q, k = attention.q_BHSK.double(), attention.k_BHTK.double()
        want_q, want_k = call.places_BT[:, new], call.places_BT.gather(1, at)
        queries, keys = self.plain.rotations[read.key]
        if "place" in kinds and queries is not None and queries.rotates:
            q = queries.move(q, torch.nan_to_num(want_q - read.stood_q_BS))
        if "place" in kinds and keys is not None and keys.rotates:
            k = keys.move(k, torch.nan_to_num(want_k - read.stood_k_BJ))
        if "rotation" in kinds and queries is not None and keys is not None:
            right = queries if queries.count else keys
            clean = replace(right, second_SC=right.first_SC)
            undo_q, undo_k = (
                clean.matrices_at(places) @ torch.linalg.inv(rotation.matrices_at(places))
                for rotation, places in ((queries, want_q), (keys, want_k))
            )
            q, k = (torch.einsum("bsij,bhsj->bhsi", undo, x) for undo, x in ((undo_q, q), (undo_k, k)))
        want, inside = self._find_bias(call, read)
        _, added = self._split(read.key, attention)
        if "scale" in kinds or "bias" in kinds:
            added = torch.where(inside[:, None], want, added)
        allowed = read.seen_BSJ
        if "seen" in kinds:
            meant = self._meant(call).gather(2, at[:, None].expand(-1, call.new, -1))
            twice = (read.column_BJ[:, :, None] == read.column_BJ[:, None]).tril(-1).any(-1)
            allowed = meant & (read.column_BJ >= 0)[:, None] & ~twice[:, None]
            added = torch.where((allowed & ~read.seen_BSJ)[:, None], want, added)
            rows = self.plain.rows(call.ids_BT)
            allowed = allowed & ~self.lost_NN[rows[:, new][..., None], rows.gather(1, at)[:, None]]
        logits = (self.plain.layers[read.key].scale * (q @ k.mT) + added).to(attention.logits_BHST.dtype)
        logits = logits.masked_fill(~allowed[:, None], torch.finfo(logits.dtype).min)
        return torch.where(call.real_BT[:, new][:, None, :, None], logits, attention.logits_BHST)


def _name_calls(names: Sequence[str], text: str) -> str:
    """Begin a sentence with its calls, unless it has a beginning; what every text does is not said of pieces again."""
    if text.startswith("the "):
        return text
    return f"{'a text' if 'a text' in names else ' and '.join(dict.fromkeys(names))} {text}"
