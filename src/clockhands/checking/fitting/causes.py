"""Find the cause of a failing check: read where tokens stand and what they see in its calls, and mend it to be sure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import CHECKS, TOLERANCE, Measurement
from clockhands.checking.fitting import biases
from clockhands.checking.fitting.calls import Call, Key, Replay, name_entry
from clockhands.checking.fitting.place_words import (
    Standing,
    describe_places,
    describe_rotations,
    describe_seen,
    join,
    most,
)
from clockhands.checking.fitting.places import Plain, describe_state, matrices_at, rotate, spread
from clockhands.checking.fitting.reading import attend_to_itself
from clockhands.checking.fitting.rotation import Rotation
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import Attention

_GROUPS = ("causal", "order", "cache", "padding", "batch", "positions", "shift", "packing", "state", "length")
_KINDS = ("rotation", "place", "entry", "seen", "bias", "scale")
_DROPPED = ("seen", "scale", "bias", "place", "entry", "rotation")
"""The kinds of differences, in the order in which they are said, and in which each is tried to be left out."""


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


@dataclass(frozen=True)
class Read:
    """What one attention of a call was found to do. Shapes: B rows, S new tokens, J keys in the order of the cache.

    ``column_BJ`` is the column whose token a key is, -1 for none; ``stood_q_BS`` and ``stood_k_BJ`` are the places of
    queries and keys, NaN where they are at none. ``bias_BHSJ`` is what was added to the scaled products.
    """

    key: Key
    attention: Attention
    column_BJ: Tensor
    stood_q_BS: Tensor
    stood_k_BJ: Tensor
    seen_BSJ: Tensor
    bias_BHSJ: Tensor


class Case:
    """One failing check of a subject: its calls, read, and mended."""

    def __init__(self, subject: Subject, check: str) -> None:
        self.subject, self.law = subject, CHECKS[check]
        self.entry = name_entry(subject.copy_untouched())
        self.calls: list[Call] = []
        self.reads: list[dict[Key, Read]] = []
        self.first = Replay(subject, self.law, self.entry, self._keep).measure()
        self.plain = Plain(subject, self.entry, torch.cat([call.ids_BT.flatten() for call in self.calls]))
        self.calls, self.strange = [], False
        """Whether a first state was met that is that of its token at no place: no key is then known by its place."""
        table = self.plain.entry_NPD
        self.moves_states = table is not None and spread(table, 1) > 1e-4 * float(table.abs().max())
        Replay(subject, self.law, self.entry, self._listen).measure()

    def _keep(self, call: Call) -> tuple[Any, Any]:
        self.calls.append(call)
        return (lambda *_: None), (lambda *_: None)

    def _listen(self, call: Call) -> tuple[Any, Any]:
        self.calls.append(call)
        reads: dict[Key, Read] = {}
        self.reads.append(reads)

        def note(key: Key, attention: Attention) -> Tensor:
            if key not in self.plain.layers:
                return attend_to_itself(attention)
            reads[key] = self._read(call, key, attention)
            return _attend_to_own(attention, reads[key].column_BJ, call)

        def keep(state: Tensor) -> None:
            call.states.append(state)
            self.strange |= bool(describe_state(self.subject.get_module(), self.plain, call))

        return note, keep

    def _read(self, call: Call, key: Key, attention: Attention) -> Read:
        rows, places = self.plain.rows(call.ids_BT), call.places_BT
        new = slice(call.past, None)
        b = len(call.ids_BT)
        queries = attention.q_BHSK.transpose(1, 2)
        stood_q = self.plain.locate(key, False, queries.flatten(0, 1), rows[:, new].flatten(), places[:, new].flatten())
        column, stood_k = self._find_columns(key, attention.k_BHTK.transpose(1, 2), rows, places)
        scale = self.plain.layers[key].layer.scale
        logits = attention.logits_BHST.double()
        seen = (logits > logits.amax(-1, keepdim=True) - 5e3).any(1)
        bias = logits - scale * attention.q_BHSK.double() @ attention.k_BHTK.double().mT
        return Read(key, attention, column, stood_q.view(b, -1), stood_k, seen, bias)

    def _find_columns(self, key: Key, keys_BJHK: Tensor, rows_BT: Tensor, places_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Return the column and the place of each key: of the token that should stand there, else of any of the row."""
        count, total = keys_BJHK.shape[1], rows_BT.shape[1]
        column = torch.arange(count, device=rows_BT.device).clamp(max=total - 1).expand(len(rows_BT), -1).clone()
        stood = self.plain.locate(
            key,
            True,
            keys_BJHK.flatten(0, 1),
            rows_BT.gather(1, column).flatten(),
            places_BT.gather(1, column).flatten(),
        ).view(column.shape)
        for b in range(len(column)):
            wrong = (stood[b].isnan() | (torch.arange(count) >= total)).nonzero().flatten().tolist()
            for j in wrong:
                stands = self.plain.locate(key, True, keys_BJHK[b, j].expand(total, -1, -1), rows_BT[b], places_BT[b])
                known = (~stands.isnan()).nonzero().flatten()
                if len(known):
                    nearest = known[(stands[known] - places_BT[b, known]).abs().argmin()]
                    column[b, j], stood[b, j] = nearest, stands[nearest]
                else:
                    column[b, j] = j if j < total and self._trusts(key, int(places_BT[b, j])) else -1
        return column, stood

    def _trusts(self, key: Key, place: int) -> bool:
        """Whether a key at no known place may still be its token's: its state is strange, or the place not read."""
        rotation = self.plain.layers[key].rotations[1]
        read = 0 <= place < self.plain.length or (rotation is not None and rotation.is_rotation and rotation.count > 0)
        return self.strange or not read

    def explain(self) -> str:
        """Return what is different in the calls, if the check passes with that mended; empty otherwise."""
        words, lost_NN = self._describe()
        kinds = [kind for kind in _KINDS if kind in words]
        nothing_lost = torch.zeros_like(lost_NN)
        if not kinds or self.first.expected or not self._passes(frozenset(kinds), lost_NN):
            return ""
        if self._passes(frozenset(), nothing_lost):  # that logits are made anew must mend nothing
            return ""
        for kind in sorted(kinds, key=_DROPPED.index):
            fewer = frozenset(kinds) - {kind}
            if fewer and self._passes(fewer, lost_NN & ("seen" in fewer)):
                kinds.remove(kind)
        return "; ".join(words[kind] for kind in kinds)

    def _describe(self) -> tuple[dict[str, str], Tensor]:
        """Return what differs, by kind, in words, and which tokens (rows of the plain text) lack the keys of which."""
        said: dict[str, str] = {}
        lost_NN = torch.zeros(2 * [len(self.plain.tokens)], dtype=torch.bool, device=self.plain.tokens.device)
        places: dict[tuple[str, str], list[Standing]] = defaultdict(list)
        seen: dict[str, list[tuple[Call, Read]]] = defaultdict(list)
        rest: dict[tuple[str, str], list[str]] = defaultdict(list)
        for call, reads in zip(self.calls, self.reads, strict=True):
            name = self._name(call)
            strange = describe_state(self.subject.get_module(), self.plain, call)
            if strange:
                rest["entry", name].append(strange)
            for key, read in reads.items():
                for what, standing in self._place(call, key, read):
                    if len(standing["meant"]):
                        places[name, what].append(standing)
                seen[name].append((call, read))
                for kind, words in self._describe_logits(call, key, read):
                    rest[kind, name].append(words)
        texts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for (name, what), parts in places.items():
            names = set.intersection(*(set(part) for part in parts))
            if text := describe_places({name: torch.cat([part[name] for part in parts]) for name in names}):
                texts["place"][f"{what + ' ' if what else ''}{text}"].append(name)
        for name, pairs in seen.items():
            if text := self._describe_seen(pairs, lost_NN):
                texts["seen"][text].append(name)
        for (kind, name), sentences in rest.items():
            texts[kind][max(set(sentences), key=sentences.count)].append(name)
        for kind, by_text in texts.items():
            names_of = {text: "" if text.startswith("the ") else f"{_join_names(n)} " for text, n in by_text.items()}
            said[kind] = " and ".join(name + text for text, name in names_of.items())
        for known in self.plain.layers.values():
            if None not in known.rotations and (text := describe_rotations(*known.rotations)):  # type: ignore[arg-type]
                said["rotation"] = text
        return said, lost_NN

    def _name(self, call: Call) -> str:
        """Name a call as what is read in it."""
        pads = int((~call.real_BT).long().cumprod(1).sum(1).max())
        if call.cached and call.past:
            return "each decode step" if call.new == 1 else "each later chunk"
        if self.law.name.startswith("packing."):
            return "a packed text"
        if call.explicit:
            return "a text whose positions are given"
        if pads:
            return f"behind {pads} pads the text"
        batched = len(call.ids_BT) > 1 and (self.law.name.startswith("batch.") or not call.real_BT.all())
        return "a row of a batch" if batched else "a text"

    def _place(self, call: Call, key: Key, read: Read) -> Iterator[tuple[str, Standing]]:
        """Yield where new tokens stand, by their first states or their queries and keys, and the keys of the cache."""
        new, total = slice(call.past, None), call.ids_BT.shape[1]
        real, meant = call.real_BT[:, new], call.places_BT[:, new]
        columns = torch.arange(total, device=meant.device)[new].expand_as(meant)
        own = read.column_BJ[:, None] == columns[..., None]
        keys = torch.where(own.any(-1), read.stood_k_BJ.gather(1, own.long().argmax(-1)), torch.nan)
        sides = {"with its queries": read.stood_q_BS, "with its keys": keys}
        if bool(((read.stood_q_BS - keys).abs() < 0.03)[real].all()):
            sides = {"": keys}
        if self.moves_states and call.entry_BSD is not None:
            rows = self.plain.rows(call.ids_BT[:, new])
            states = self.plain.locate_state(call.entry_BSD.flatten(0, 1), rows.flatten(), meant.flatten())
            entry = states.view(meant.shape)
            sides = {"": entry} if bool((entry != meant)[real & ~entry.isnan()].any()) else sides
        counted = {
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
            yield what, {name: x[kept] for name, x in {"meant": meant, "stood": stood, **counted}.items()}
        before = self._read_before(call, key)
        if before is not None:
            at = read.column_BJ.clamp(min=0)
            then = before.gather(1, at.clamp(max=before.shape[1] - 1))
            old = (read.column_BJ >= 0) & (at < before.shape[1]) & call.real_BT.gather(1, at)
            old &= ~(read.stood_k_BJ.isnan() | then.isnan())
            yield "with the keys of its cache", {"meant": then[old], "stood": read.stood_k_BJ[old]}

    def _read_before(self, call: Call, key: Key) -> Tensor | None:
        """Return where the keys of the cache stood [B, T] when they were read last; None of a call that begins one."""
        for earlier, reads in zip(self.calls, self.reads, strict=True):
            if call.past and key in reads and torch.equal(earlier.ids_BT, call.ids_BT[:, : call.past]):
                places = torch.full(earlier.ids_BT.shape, torch.nan, dtype=torch.float64)
                known, rows = reads[key].column_BJ >= 0, torch.arange(len(places))[:, None]
                rows = rows.expand_as(known)
                places[rows[known], reads[key].column_BJ[known]] = reads[key].stood_k_BJ[known]
                return places.to(call.ids_BT.device)
        return None

    def _describe_seen(self, pairs: list[tuple[Call, Read]], lost_NN: Tensor) -> str:
        words: list[str] = []
        for call, read in pairs:
            total, new = call.ids_BT.shape[1], slice(call.past, None)
            slots = torch.nn.functional.one_hot(read.column_BJ + 1, total + 1)[..., 1:]
            counts = torch.einsum("bsj,bjt->bst", read.seen_BSJ.long(), slots)
            meant = self._meant(call, read)
            own = torch.arange(total, device=meant.device)[new].expand(len(meant), -1)
            real = call.real_BT[:, new]
            orphans = (read.seen_BSJ & (read.column_BJ < 0)[:, None])[real]
            order = read.column_BJ[(read.column_BJ >= 0).all(1)]
            if len(order) and bool((order.diff() < 0).any()) and order.shape[1] == total:
                words.append("has its keys in another order than they were read")
                continue
            if (
                len(meant) > 1
                and torch.equal((counts > 0)[real], meant[:1].expand_as(meant)[real])
                and bool((meant != meant[:1])[real].any())
            ):
                words.append("is masked as the first row is")
                continue
            kept = call.real_BT[:, None].expand_as(meant)[real]
            words += describe_seen(
                counts[real],
                meant[real],
                own[real],
                kept,
                self.law.name.startswith("packing."),
                most(orphans),
                self._origin(call, read),
            )
            b, s, t = (meant & (counts == 0) & real[..., None] & (slots.sum(1) == 0)[:, None]).nonzero(as_tuple=True)
            rows = self.plain.rows(call.ids_BT)
            lost_NN[rows[b, call.past + s], rows[b, t]] = True
        return join(words)

    def _origin(self, call: Call, read: Read) -> str:
        """Say whose the first key is that is none of its text's."""
        orphans = (read.column_BJ < 0).nonzero().tolist()
        if not orphans:
            return ""
        b, j = orphans[0]
        vector, rows = read.attention.k_BHTK[b, :, j], torch.arange(len(self.plain.tokens))
        near = call.places_BT[b, min(j, call.places_BT.shape[1] - 1)].expand(len(rows))
        fits = {
            key: self.plain.locate(key, True, vector.expand(len(rows), -1, -1), rows, near).isnan().logical_not().any()
            for key in self.plain.layers
        }
        if fits[read.key]:
            return "of another row, or of tokens that were taken back"
        return "of another layer" if any(fits.values()) else "of no token"

    def _meant(self, call: Call, read: Read) -> Tensor:
        """The keys [B, S, T] that new tokens are meant to see: those of the call, inside the window of a plain text."""
        plain = next(iter(self.plain.layers.values())).layer.allowed_ST
        columns = torch.arange(call.ids_BT.shape[1], device=plain.device)
        back = (columns[call.past :, None] - columns[None]).clamp(min=0, max=len(plain) - 1)
        return call.kept_BST & (plain[-1].flip(0)[back] | (back == 0))

    def _describe_logits(self, call: Call, key: Key, read: Read) -> list[tuple[str, str]]:
        """Say how a scale or a bias is another than in a plain text."""
        layer = self.plain.layers[key].layer
        b = int(call.real_BT.sum(1).argmax())
        want, known = self._wanted_bias(call, key, read)
        shown = known[b] & read.seen_BSJ[b] & call.real_BT[b, call.past :][:, None]
        mine = torch.where(shown, read.bias_BHSJ[b], 0.0)
        wanted = torch.where(shown, want[b], 0.0)
        if not shown.any() or not biases.differ(mine, wanted, shown):
            return []
        products = (layer.scale * read.attention.q_BHSK.double() @ read.attention.k_BHTK.double().mT)[b]
        left, right = (_centre(x, shown) for x in (mine - wanted, products))
        gain = 1 + float((left * right).sum() / right.square().sum().clamp(min=1e-12))
        if float((left - (gain - 1) * right).abs().max()) < 2e-3 * max(1.0, float(right.abs().max())):
            return [("scale", "has logits of attention of another scale, which follows the length")]
        text = biases.describe_bias(mine, wanted, shown)
        return [("bias", text[0].replace("the reference's", "those of the whole text"))] if text else []

    def _wanted_bias(self, call: Call, key: Key, read: Read) -> tuple[Tensor, Tensor]:
        """The bias [B, H, S, J] that keys have in a plain text, and where it is known."""
        bias = self.plain.layers[key].layer.bias_HST
        q, k = call.places_BT[:, call.past :], call.places_BT.gather(1, read.column_BJ.clamp(min=0))
        known = (q[..., None] >= k[:, None]) & (read.column_BJ >= 0)[:, None] if self.subject.causal else None
        inside = (q[..., None] < len(bias[0])) & (k[:, None] < len(bias[0]))
        known = inside if known is None else known & inside
        top = len(bias[0]) - 1
        return bias[:, q.clamp(0, top)[..., None], k.clamp(0, top)[:, None]].transpose(0, 1), known

    def _passes(self, kinds: frozenset[str], lost_NN: Tensor) -> bool:
        """Whether the check passes with differences of these kinds mended in its calls."""
        count = iter(range(len(self.calls)))

        def mend(call: Call) -> tuple[Any, Any]:
            reads = self.reads[next(count)]

            def logits(key: Key, attention: Attention) -> Tensor | None:
                return self._mend(call, key, reads[key], attention, kinds, lost_NN) if key in reads else None

            def state(seen: Tensor) -> Tensor | None:
                return self._mend_state(call, seen) if kinds & {"place", "entry"} else None

            return logits, state

        measured: Measurement = Replay(self.subject, self.law, self.entry, mend).measure()
        return measured.expected and (measured.wanted or measured.size <= max(TOLERANCE, self.first.size / 100))

    def _mend_state(self, call: Call, seen: Tensor) -> Tensor | None:
        table, new = self.plain.entry_NPD, slice(call.past, None)
        if table is None:
            return None
        places, rows = call.places_BT[:, new], self.plain.rows(call.ids_BT[:, new])
        fits = call.real_BT[:, new] & (places < self.plain.length) & (places >= 0) & (rows >= 0)
        wanted = table[rows, places.clamp(0, self.plain.length - 1)].to(seen.dtype)
        moved = (wanted - seen).abs().amax(-1) > 1e-4 * table.abs().max()
        return torch.where((fits & moved)[..., None], wanted, seen)

    def _mend(
        self, call: Call, key: Key, read: Read, attention: Attention, kinds: frozenset[str], lost_NN: Tensor
    ) -> Tensor | None:
        known, new = self.plain.layers[key], slice(call.past, None)
        q, k = attention.q_BHSK.double(), attention.k_BHTK.double()
        real, at = call.real_BT[:, new], read.column_BJ.clamp(min=0)
        want_q, want_k = call.places_BT[:, new], call.places_BT.gather(1, at)
        if "place" in kinds:
            for keys, (x, want, stood) in enumerate(((q, want_q, read.stood_q_BS), (k, want_k, read.stood_k_BJ))):
                rotation = known.rotations[keys]
                if rotation is not None and rotation.count and rotation.is_rotation:
                    x = rotate(x, rotation, torch.nan_to_num(want - stood))
                q, k = (q, x) if keys else (x, k)
        queries, other = known.rotations
        if "rotation" in kinds and queries is not None and other is not None:
            right = queries if queries.count else other
            clean = matrices_at(_cleaned(right), want_q), matrices_at(_cleaned(right), want_k)
            q, k = (
                torch.einsum("bsij,bhsj->bhsi", after @ torch.linalg.inv(matrices_at(rotation, places)), x)
                for x, after, rotation, places in ((q, clean[0], queries, want_q), (k, clean[1], other, want_k))
            )
        want, inside = self._wanted_bias(call, key, read)
        added = (
            attention.logits_BHST.double()
            - known.layer.scale * attention.q_BHSK.double() @ attention.k_BHTK.double().mT
        )
        if "scale" in kinds or "bias" in kinds:
            added = torch.where(inside[:, None], want, added)
        allowed = read.seen_BSJ
        if "seen" in kinds:
            meant = self._meant(call, read).gather(2, at[:, None].expand(-1, call.new, -1))
            twice = (read.column_BJ[:, :, None] == read.column_BJ[:, None]).tril(-1).any(-1)
            allowed = meant & (read.column_BJ >= 0)[:, None] & ~twice[:, None]
            added = torch.where((allowed & ~read.seen_BSJ)[:, None], want, added)
        rows = self.plain.rows(call.ids_BT)
        allowed = allowed & ~lost_NN[rows[:, new][..., None], rows.gather(1, at)[:, None]]
        logits = (known.layer.scale * (q @ k.mT) + added).to(attention.logits_BHST.dtype)
        logits = logits.masked_fill(~allowed[:, None], torch.finfo(logits.dtype).min)
        return torch.where(real[:, None, :, None], logits, attention.logits_BHST)


def _attend_to_own(attention: Attention, column_BJ: Tensor, call: Call) -> Tensor:
    """Return logits by which each new token attends to its own key alone, wherever that is in the cache."""
    columns = torch.arange(call.ids_BT.shape[1], device=column_BJ.device)[call.past :]
    own = column_BJ[:, None] == columns[:, None]
    alone = attend_to_itself(attention)
    chosen = torch.where(own, 0.0, torch.finfo(alone.dtype).min)[:, None].expand_as(alone).to(alone.dtype)
    first = own & (own.long().cumsum(-1) == 1)
    chosen = torch.where(first[:, None], 0.0, torch.finfo(alone.dtype).min).to(alone.dtype).expand_as(alone)
    return torch.where(own.any(-1)[:, None, :, None], chosen, alone)


def _cleaned(rotation: Rotation) -> Rotation:
    return replace(rotation, second_SC=rotation.first_SC)


def _centre(x_HSJ: Tensor, shown_SJ: Tensor) -> Tensor:
    kept = torch.where(shown_SJ, x_HSJ, 0.0)
    return torch.where(shown_SJ, kept - kept.sum(-1, keepdim=True) / shown_SJ.sum(-1, keepdim=True).clamp(min=1), 0.0)


def _join_names(names: Sequence[str]) -> str:
    """Name the calls of which one thing is said: what every text does is not said of pieces and rows again."""
    return "a text" if "a text" in names else " and ".join(dict.fromkeys(names))
