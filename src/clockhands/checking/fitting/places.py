"""Where in a plain text the queries, keys and first states of a call stand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from clockhands.checking.fitting.biases import differ
from clockhands.checking.fitting.calls import AttentionRead, Call
from clockhands.checking.fitting.compare import find_factor, is_near, size_of, varies, wrap
from clockhands.checking.fitting.reading import Key, MeasuredLayer, PassReading, find_seen, read, reads_source
from clockhands.checking.fitting.rotation import FittedRotation, fit_rotation
from clockhands.checking.fitting.words import Standing, name_scale
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import TappedAttention

_NEAR = 1e-4
_LENGTH, _SHORTER = 96, 44
_NEAR_BY = 12


class PlainReading:
    """A model read over rows of one token each, every token of ``tokens`` at the places 0 to P - 1.

    ``layers`` are its attentions, and ``rotations`` how their queries and their keys rotate, None where they do
    something else, or rotate ``across`` their heads; ``entry_NPD`` are the first states. ``sources`` are the attentions
    to a source that stays, and ``source_1SD`` its first states.
    """

    def __init__(self, subject: Subject, entries: tuple[str, ...], tokens: Tensor) -> None:
        self.tokens, self.causal = tokens.unique(), subject.causal
        self.length = min(_LENGTH, (subject.facts.limit or _LENGTH) - subject.facts.first)

        def read_rows(tokens: Tensor, sources: set[Key] | None = None) -> PassReading:
            ids = tokens[:, None].repeat(1, self.length)
            return read(subject.copy_untouched(), entries, ids, Subject.logits, sources)

        try:
            every = read_rows(self.tokens)
        except Exception:  # of a table that ends before, and says so nowhere
            self.length = min(self.length, _SHORTER)
            every = read_rows(self.tokens)
        self.sources = {key for key, attention in every.attentions.items() if reads_source(attention)}
        last = read_rows(self.tokens[-1:], self.sources)
        alone = list(zip((state[-1:] for state in every.states), last.states, strict=True))
        for key, item in last.attentions.items():
            heard = every.attentions[key]
            alone += [(heard.k_BHTK[-1:], item.k_BHTK)]
            alone += [(heard.logits_BHST[-1:].softmax(-1), item.logits_BHST.softmax(-1))]
        if any(size_of(a - b) > _NEAR * size_of(b) for a, b in alone):  # the row matters
            every = PassReading.join([read_rows(token, self.sources) for token in self.tokens[:, None]])
        self.entry_NPD = every.states[0] if every.states else None
        self.source_1SD = every.states[1][:1] if len(every.states) > 1 else None
        self.layers: dict[Key, MeasuredLayer] = {}
        self.crossing: set[Key] = set()  # of the target to the source whose side is checked
        self.rotations: dict[Key, tuple[FittedRotation | None, FittedRotation | None]] = {}
        self.across: dict[Key, tuple[FittedRotation, FittedRotation]] = {}
        for key, layer in every.measure().items():
            if not subject.aligned and layer.allowed_ST.shape[1] == self.length != layer.allowed_ST.shape[0]:
                self.crossing.add(key)
            if layer.exact and layer.is_of_text and layer.allowed_ST.shape == (self.length, self.length):
                self.layers[key] = layer
                queries, keys = map(_fit_steady, layer.sides)
                self.rotations[key] = queries, keys
                if queries is None and keys is None:
                    queries, keys = (_fit_steady(x.transpose(1, 2).flatten(2)[:, None]) for x in layer.sides)
                    if queries is not None and keys is not None:
                        self.across[key] = queries, keys

    def read(self, call: Call, key: Key, attention: TappedAttention, strange: bool) -> AttentionRead:
        """Find the places of queries and keys, and the column of each key: its own, else that of any token of the row.

        ``strange``: first states were met that are at no place.
        """
        rows, places = self.rows(call.ids_BT), call.places_BT
        queries, keys_BJHK = attention.q_BHSK.transpose(1, 2), attention.k_BHTK.transpose(1, 2)
        stood_q = self.locate(key, False, queries, rows[:, call.past :], call.new_places_BS)
        count, total = keys_BJHK.shape[1], call.total
        numbers, best_hits = torch.arange(count, device=rows.device), -1
        for start in (0, total - count) if count < total else (0,):  # a cache that keeps the last of a window
            guess = (numbers + start).clamp(max=total - 1).expand(len(rows), -1).clone()
            near, own = places.gather(1, guess), rows.gather(1, guess)
            stood = self.locate(key, True, keys_BJHK, own, near)
            if (hits := int((stood == near).sum())) > best_hits:
                column, stood_k, best_hits = guess, stood, hits
        stale = torch.zeros_like(column, dtype=torch.bool)
        if call.replaced is not None and count >= (old := call.replaced[0].shape[1]):
            stands = self.locate(key, True, keys_BJHK[:, :old], self.rows(call.replaced[0]), call.replaced[1])
            stale[:, :old] = (~stands.isnan()).all(1, keepdim=True) & stood_k[:, :old].isnan().any(1, keepdim=True)
        column[stale], stood_k[stale] = -1, torch.nan
        b, j = ((stood_k.isnan() & ~stale) | (numbers >= total)).nonzero(as_tuple=True)
        if len(b):  # whose keys they are, of all tokens of the row: of several that which stands nearest to its place
            vectors, at = keys_BJHK[b, j], j.clamp(max=total - 1)
            stands = self.locate(key, True, vectors[:, None].expand(-1, total, -1, -1), rows[b], places[b])
            gaps, nearest = (stands - places[b]).abs().nan_to_num(math.inf).min(1)
            # At no known place it may still be its token's key, rotated otherwise, or where places cannot be read.
            rotation = self.rotations[key][1]
            readable = (places[b, at] >= 0) & (places[b, at] < self.length)
            readable |= rotation is not None and rotation.rotates
            plain_MH = self.layers[key].k_BHTK[rows[b, at], :, 0].norm(dim=-1)
            is_rotated = ((vectors.double().norm(dim=-1) / plain_MH - 1).abs() < _NEAR).all(-1)  # by whatever angle
            own = ~readable | ~call.real_BT[b, at] | is_rotated | strange
            column[b, j] = torch.where(gaps < math.inf, nearest, torch.where(own & (j < total), j, -1))
            stood_k[b, j] = stands.gather(1, nearest[:, None])[:, 0]
        seen = find_seen(attention.logits_BHST.double()).any(1)
        return AttentionRead(key, attention, column, stood_q, stood_k, seen)

    def fit_other_rotation(self, key: Key, calls: Sequence[Call], keys: bool) -> FittedRotation | None:
        """Fit how the queries or keys of new tokens rotate that are at no place of a plain text, from place 0 on."""
        plain = self.layers[key].sides[keys]
        seen: dict[int, tuple[Tensor, Tensor]] = {}
        for call in calls:
            rows, own = self.rows(call.ids_BT), call.reads[key]
            vectors, stood = own.attention.q_BHSK, own.stood_q_BS
            columns = call.columns_S.expand(stood.shape)
            if keys:
                vectors, columns, stood = own.attention.k_BHTK, own.column_BJ, own.stood_k_BJ
            for b, j in (stood.isnan() & (columns >= call.past)).nonzero().tolist():
                place, row = call.places_BT[b, columns[b, j]], rows[b, columns[b, j]]
                seen.setdefault(int(place), (plain[row, :, 0], vectors[b, :, j]))
        first = min(seen, default=0)
        places = [place for place in sorted(seen) if all(before in seen for before in range(first, place))]
        if len(places) < 4 or plain.shape[1] < 3:  # of fewer heads any map of two channels would do
            return None
        before, after = (torch.stack([seen[place][side] for place in places], 1) for side in (0, 1))
        fitted = fit_rotation(after, before)
        if fitted is None or not fitted.rotates:
            return None
        angles = fitted.first_SC - first * fitted.speeds_C
        return replace(fitted, first_SC=angles, second_SC=angles)

    def split(self, key: Key, attention: TappedAttention) -> tuple[Tensor, Tensor]:
        """Return the products of queries and keys at the scale of a plain text, and what the logits are beyond them."""
        products = self.layers[key].scale * attention.q_BHSK.double() @ attention.k_BHTK.double().mT
        return products, attention.logits_BHST.double() - products

    def find_bias(self, call: Call, read: AttentionRead) -> tuple[Tensor, Tensor]:
        """The bias [B, H, S, J] that keys have in a plain text, and where it is known."""
        bias = self.layers[read.key].bias_HST
        q, k = call.new_places_BS, call.places_BT.gather(1, read.at_BJ)
        top = bias.shape[1] - 1
        known = (q[..., None] <= top) & (k[:, None] <= top)
        if self.causal:
            known = known & (q[..., None] >= k[:, None]) & (read.column_BJ >= 0)[:, None]
        return bias[:, q.clamp(0, top)[..., None], k.clamp(0, top)[:, None]].transpose(0, 1), known

    def is_placeless(self) -> bool:
        """Whether a token's state, its queries and keys, and every bias are the same at each place."""
        sides = [side for pair in self.rotations.values() for side in pair]
        rotated = not sides or any(side is None or side.count for side in sides)
        layers = self.layers.values()
        biased = any(differ(x.bias_HST, torch.zeros_like(x.bias_HST), x.allowed_ST) for x in layers)
        return not rotated and not biased and self.entry_NPD is not None and not varies(self.entry_NPD, 1)

    def list_standings(
        self, call: Call, key: Key, read: AttentionRead, calls: Sequence[Call]
    ) -> Iterator[tuple[str, Standing]]:
        """Yield where new tokens stand, by their first states or their queries and keys, and the keys of the cache.

        Nothing is yielded of an attention that is given no position: its keys are the same at every place.
        """
        if not varies(self.layers[key].k_BHTK, 2):
            return
        real, meant = call.new_real_BS, call.new_places_BS
        columns = call.columns_S.expand_as(meant)
        own = read.column_BJ[:, None] == columns[..., None]
        keys = torch.where(own.any(-1), read.stood_k_BJ.gather(1, own.long().argmax(-1)), torch.nan)
        sides = {"with its queries": read.stood_q_BS, "with its keys": keys}
        if ((read.stood_q_BS - keys).abs() < 0.03)[real].all():
            sides = {"": keys}
        table = self.entry_NPD
        if call.states and table is not None and varies(table, 1):
            entry = self.locate_states(call, table)
            sides = {"": entry} if (entry != meant)[real & ~entry.isnan()].any() else sides
        counted = {
            "meant": meant,
            "index": real.long().cumsum(1) - 1,
            "past": torch.full_like(meant, call.past),
            "column": columns,
            "first": meant[:1].expand_as(meant),
            "longest": meant.amax(0).expand_as(meant),
            "total": torch.full_like(meant, call.total),
            "length": torch.full_like(meant, self.length),
        }
        if call.explicit:
            counted["default"] = (call.real_BT.long().cumsum(1) - 1).clamp(min=0)[:, call.past :]
        for what, stood in sides.items():
            kept = real & ~stood.isnan()
            yield what, {name: x[kept] for name, x in {"stood": stood, **counted}.items()}
        then = torch.full(call.ids_BT.shape, torch.nan, dtype=torch.float64, device=meant.device)
        for earlier in calls:  # those in which the keys of the cache were new
            begins = torch.equal(earlier.ids_BT, call.ids_BT[:, : earlier.total])
            if key not in earlier.reads or earlier.total > call.past or not begins:
                continue
            before = earlier.reads[key]
            b, j = (before.column_BJ >= earlier.past).nonzero(as_tuple=True)
            then[b, before.column_BJ[b, j]] = before.stood_k_BJ[b, j]
        was, now = then.gather(1, read.at_BJ), read.stood_k_BJ
        old = (read.column_BJ >= 0) & call.real_BT.gather(1, read.at_BJ) & ~(was.isnan() | now.isnan())
        again = call.places_BT.gather(1, read.at_BJ)
        yield "with the keys of its cache", {"meant": was[old], "stood": now[old], "again": again[old]}

    def rows(self, ids: Tensor) -> Tensor:
        """Return the row of each token; -1 for one that was not read."""
        at = torch.searchsorted(self.tokens, ids.contiguous()).clamp(max=len(self.tokens) - 1)
        return torch.where(self.tokens[at] == ids, at, -1)

    def locate_states(self, call: Call, table_NPD: Tensor) -> Tensor:
        """Return the places [B, S] of the new tokens by their first states; NaN where it is that of none."""
        rows, meant = self.rows(call.ids_BT[:, call.past :]), call.new_places_BS
        return _match(table_NPD[rows], call.states[0], meant)

    def locate(self, key: Key, keys: bool, vectors_MHK: Tensor, rows_M: Tensor, near_M: Tensor) -> Tensor:
        """Return the place of each query or key of a known token, nearest to where it is looked for; NaN if at none."""
        rotation, plain = self.rotations[key][keys], self.layers[key].sides[keys]
        if rotation is None or not rotation.rotates or size_of(rotation.speeds_C) < 1e-7:
            return _match(plain[rows_M].transpose(-3, -2).flatten(-2), vectors_MHK.flatten(-2), near_M)
        return _find_rotated(rotation, plain[rows_M][..., 0, :], vectors_MHK.double(), near_M)

    def describe_state(self, module: nn.Module, call: Call) -> Iterator[str]:
        """Yield how first states differ where they are those of their tokens at no place; "" if that has no words."""
        table = self.entry_NPD
        if not call.states or table is None:
            return
        rows = self.rows(call.ids_BT[:, call.past :])
        meant = call.new_places_BS.clamp(min=0, max=self.length - 1)
        strange = self.locate_states(call, table).isnan() & call.new_real_BS
        gap, size = call.states[0].double() - table[rows, meant].double(), size_of(table)
        if not strange.any():
            return
        if len(gap) > 1 and not call.past and not varies(gap, 1, 1e-3, size) and varies(gap, 0, 1e-3, size):
            yield "the encoding follows the row of the batch: each row has one vector of position for all its tokens"
            return
        # First states are what an embedding gives to tokens, and vectors of position.
        states, rest = table[:, 0].double(), gap[strange]
        for part in module.modules():
            if not isinstance(part, nn.Embedding) or part.embedding_dim != states.shape[1]:
                continue
            if part.num_embeddings <= self.tokens.max():
                continue
            added = part.weight.detach()[self.tokens].double()
            shown = states - states.mean(0)
            scale = find_factor(shown, added - added.mean(0), size_of(shown))
            if scale is None:
                continue
            start = (states - scale * added).mean(0)  # the vector of place 0
            vectors = (table - table[:, :1]).double().mean(0)[meant][strange] + start
            more = find_factor(rest, scale * added[rows][strange], size)
            if is_near(rest, vectors, size):
                yield "has the vector of its position twice"
            elif is_near(rest, -vectors, size):
                yield "has no position added"
            else:
                yield "" if more is None else name_scale(1 + more, table.shape[-1], "once more")
            return
        yield ""


def _fit_steady(x_NHSK: Tensor) -> FittedRotation | None:
    """Fit how vectors rotate, at the speeds of the first places, or of the last if those are held."""
    own = near = fit_rotation(x_NHSK.flatten(0, 1))
    if own is None or not own.count or own.keeps(own.speeds_C):
        return own
    for part in (slice(_NEAR_BY), slice(-_NEAR_BY, None)):  # held or begun anew further on, or held at first
        first, second = (x[part] - x[part][:1] for x in (own.first_SC, own.second_SC))
        near = replace(own, first_SC=first, second_SC=second)
        if near.keeps(near.speeds_C):
            break
    return near


def _match(table_MPD: Tensor, x_MD: Tensor, near_M: Tensor) -> Tensor:
    """Return the place at which each vector's own table holds it, nearest to where it is looked for; NaN if none."""
    gaps = (table_MPD - x_MD[..., None, :].to(table_MPD.dtype)).abs().amax(-1) / size_of(table_MPD)
    places = torch.arange(table_MPD.shape[-2], device=x_MD.device)
    return _take_nearest(places.double().expand_as(gaps), ~(gaps > _NEAR), near_M)


def _take_nearest(places_MP: Tensor, fits_MP: Tensor, near_M: Tensor) -> Tensor:
    """Return of places that fit the nearest to where it is looked for, NaN where none fits; M is one axis or more."""
    gaps, at = (places_MP - near_M[..., None]).abs().masked_fill(~fits_MP, math.inf).min(-1)
    return torch.where(gaps < math.inf, places_MP.gather(-1, at[..., None])[..., 0], math.nan)


def _find_rotated(rotation: FittedRotation, plain_MHK: Tensor, x_MHK: Tensor, near_M: Tensor) -> Tensor:
    """Find by how many places vectors are rotated: slow pairs say roughly, faster ones ever more exactly."""
    a, b = rotation.channels
    start, end = (torch.complex(x[..., a], x[..., b]) for x in (plain_MHK.double(), x_MHK))
    ratio = (end * start.conj()).sum(-2) / (start.abs().square().sum(-2) + 1e-30)
    rest = (end - ratio[..., None, :] * start).abs().amax((-2, -1)) / size_of(start)
    still = torch.ones(x_MHK.shape[-1], dtype=torch.bool, device=x_MHK.device)
    still[a], still[b] = False, False
    if still.any():
        rest = rest.maximum((x_MHK - plain_MHK)[..., still].abs().amax((-2, -1)) / size_of(plain_MHK))
    speeds, angle = rotation.speeds_C, ratio.angle()
    slow_to_fast = [pair for pair in speeds.abs().argsort().tolist() if speeds[pair].abs() > 1e-7]
    period = 2 * math.pi / abs(float(speeds[slow_to_fast[0]]))
    reach = min(64, math.ceil(2.2 * size_of(near_M) / period))
    place = near_M.double()[..., None] + period * torch.arange(-reach, reach + 1, device=x_MHK.device)
    for pair in slow_to_fast:
        speed, own = float(speeds[pair]), angle[..., pair, None]
        place = (own + 2 * math.pi * ((place * speed - own) / (2 * math.pi)).round()) / speed
    place = torch.where((place - place.round()).abs() < 0.02, place.round(), place)
    off = wrap(place[..., None] * speeds - angle[..., None, :])
    fits = (off.abs() < 1e-3 + 1e-4 * place.abs()[..., None] * speeds.abs()).all(-1)
    fits &= ((rest < 1e-3) & ((ratio.abs() - 1).abs() < 1e-2).all(-1))[..., None]
    return _take_nearest(place, fits, near_M)
