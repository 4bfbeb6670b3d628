"""What every token of a text is at every place of a plain one, and where a vector that was read stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clockhands.checking.fitting.calls import Call, Key, listen
from clockhands.checking.fitting.entries import name_scale
from clockhands.checking.fitting.reading import Layer, attend_to_itself, is_one_text, measure
from clockhands.checking.fitting.rotation import Rotation, fit_rotation, fit_speeds, keeps_speed
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import Attention

_NEAR = 1e-4
_LENGTH = 96
_NEAR_BY = 12


@dataclass(frozen=True)
class Known:
    """One attention over N rows of one token each, at P places: ``layer``, and how its queries and keys rotation.

    ``rotations`` are those of queries and keys; None where they are something else than rotations.
    """

    layer: Layer
    rotations: tuple[Rotation | None, Rotation | None]

    def vectors(self, keys: bool) -> Tensor:
        """Return queries or keys, [N, H, P, K]."""
        return self.layer.k_BHTK if keys else self.layer.q_BHSK


class Plain:
    """A model read over rows of one token each, every token of ``tokens`` at the places 0 to P - 1."""

    def __init__(self, subject: Subject, entry: str | None, tokens: Tensor) -> None:
        self.tokens = tokens.unique()
        self.length = min(_LENGTH, (subject.facts.limit or _LENGTH) - subject.facts.first)
        heard, states = _read_rows(subject, entry, self.tokens[:, None].repeat(1, self.length))
        last = _read_rows(subject, entry, self.tokens[-1:, None].repeat(1, self.length))
        alone = [(states[-1:], last[1])] if states is not None and last[1] is not None else []
        alone += [(heard[key].k_BHTK[-1:], item.k_BHTK) for key, item in last[0].items() if key in heard]
        if any(float((a - b).abs().max()) > _NEAR * float(b.abs().max()) for a, b in alone):  # the row matters
            heard, states = _join([_read_rows(subject, entry, t.repeat(1, self.length)) for t in self.tokens[:, None]])
        self.entry_NPD = states
        square = (self.length, self.length)
        own = {key: item for key, item in heard.items() if item.logits_BHST.shape[-2:] == square}
        own = {key: item for key, item in own.items() if not is_one_text(item.k_BHTK)}
        layers = {key: measure(item) for key, item in own.items()}
        self.layers = {key: Known(layer, _fit_rotations(layer)) for key, layer in layers.items() if layer.exact}

    def rows(self, ids: Tensor) -> Tensor:
        """Return the row of each token; -1 for one that was not read."""
        at = torch.searchsorted(self.tokens, ids.contiguous()).clamp(max=len(self.tokens) - 1)
        return torch.where(self.tokens[at] == ids, at, -1)

    def locate_state(self, state_MD: Tensor, rows_M: Tensor, near_M: Tensor) -> Tensor:
        """Return the place of each first state; NaN where it is that of none."""
        assert self.entry_NPD is not None
        return _match(self.entry_NPD[rows_M], state_MD, near_M)

    def locate(self, key: Key, keys: bool, vectors_MHK: Tensor, rows_M: Tensor, near_M: Tensor) -> Tensor:
        """Return the place of each query or key of a known token, nearest to where it is looked for; NaN if at none."""
        known = self.layers[key]
        rotation, plain = known.rotations[keys], known.vectors(keys)
        if rotation is None or not rotation.count or not rotation.is_rotation:
            return _match(plain[rows_M].transpose(1, 2).flatten(2), vectors_MHK.flatten(1), near_M)
        return _find_rotated(rotation, plain[rows_M][:, :, 0], vectors_MHK.double(), near_M)


def rotate(x_BHSK: Tensor, rotation: Rotation, by_BS: Tensor) -> Tensor:
    """Rotate vectors further, by so many places."""
    a, b = rotation.channels
    angles = by_BS[:, None, :, None].double() * rotation.speeds_C
    rotated = x_BHSK.double().clone()
    first, second = rotated[..., a].clone(), rotated[..., b].clone()
    rotated[..., a] = first * angles.cos() - second * angles.sin()
    rotated[..., b] = first * angles.sin() + second * angles.cos()
    return rotated


def matrices_at(rotation: Rotation, places: Tensor) -> Tensor:
    """Return the linear map of each place, [..., K, K], also of places beyond those that were read."""
    flat = places.flatten().double()[:, None]
    first, second = (part[:1] + flat * fit_speeds(part) for part in (rotation.first_SC, rotation.second_SC))
    return replace(rotation, first_SC=first, second_SC=second).matrices().unflatten(0, places.shape)


def describe_state(module: nn.Module, plain: Plain, call: Call) -> str:
    """Say how the first states of a call differ where they are those of their tokens at no place; empty if none is."""
    new, table = slice(call.past, None), plain.entry_NPD
    if call.entry_BSD is None or table is None:
        return ""
    real, rows = call.real_BT[:, new], plain.rows(call.ids_BT[:, new])
    meant = call.places_BT[:, new].clamp(min=0, max=plain.length - 1)
    where = plain.locate_state(call.entry_BSD.flatten(0, 1), rows.flatten(), meant.flatten())
    strange = where.isnan().view(real.shape) & real
    gap, size = call.entry_BSD.double() - table[rows, meant].double(), float(table.abs().max())
    if not strange.any():
        return ""
    if len(gap) > 1 and not call.past and spread(gap, 1) < 1e-3 * size < spread(gap, 0):
        return "the encoding follows the row of the batch: each row has one vector of position for all its tokens"
    looked_up = _find_tokens(module, table, plain.tokens)
    if looked_up is None:
        return ""
    own, vectors = looked_up[0][rows][strange], (table - table[:, :1]).double().mean(0)[meant][strange] + looked_up[1]
    rest = gap[strange]
    for factor, words in ((1, "has the vector of its position twice"), (-1, "has no position added")):
        if float((rest - factor * vectors).abs().max()) < 1e-3 * size:
            return words
    ratio = 1 + float((rest * own).sum() / own.square().sum())
    exact = float((rest - (ratio - 1) * own).abs().max()) < 1e-3 * size
    return name_scale(ratio, table.shape[-1]) if exact else ""


def _find_tokens(module: nn.Module, table_NPD: Tensor, tokens_N: Tensor) -> tuple[Tensor, Tensor] | None:
    """What tokens add to first states [N, D], and the vector [D] of place 0; None if no embedding explains it."""
    states = table_NPD[:, 0].double()
    for part in module.modules():
        if not isinstance(part, nn.Embedding) or part.embedding_dim != states.shape[1]:
            continue
        if part.num_embeddings > tokens_N.max():
            rows = part.weight.detach()[tokens_N].double()
            x, y = rows - rows.mean(0), states - states.mean(0)
            scale = (x * y).sum() / x.square().sum()
            if float((y - scale * x).abs().max()) < 1e-3 * float(y.abs().max()):
                return scale * rows, (states - scale * rows).mean(0)
    return None


def spread(x: Tensor, axis: int) -> float:
    """Return how far vectors are from the first along an axis."""
    return float((x - x.narrow(axis, 0, 1)).abs().max())


def _read_rows(subject: Subject, entry: str | None, ids: Tensor) -> tuple[dict[Key, Attention], Tensor | None]:
    heard: dict[Key, Attention] = {}
    states: list[Tensor] = []

    def note(key: Key, attention: Attention) -> Tensor:
        heard[key] = attention
        return attend_to_itself(attention)

    def keep(state: Tensor) -> None:
        states.append(state)

    fresh = subject.copy_untouched()
    listen(fresh.get_module(), entry, len(ids), note, keep, lambda: fresh.logits(ids))
    return heard, states[0] if states else None


def _join(parts: Sequence[tuple[dict[Key, Attention], Tensor | None]]) -> tuple[dict[Key, Attention], Tensor | None]:
    heard = {}
    for key, first in parts[0][0].items():
        same = [part[key] for part, _ in parts]
        q, k, logits = (torch.cat([getattr(x, n) for x in same]) for n in ("q_BHSK", "k_BHTK", "logits_BHST"))
        heard[key] = replace(first, q_BHSK=q, k_BHTK=k, logits_BHST=logits)
    states = [state for _, state in parts if state is not None]
    return heard, torch.cat(states) if states else None


def _fit_rotations(layer: Layer) -> tuple[Rotation | None, Rotation | None]:
    rotations = [fit_rotation(x.flatten(0, 1)) for x in (layer.q_BHSK, layer.k_BHTK)]
    for index, own in enumerate(rotations):
        if own is not None and own.count and not keeps_speed(own, own.speeds_C):  # held or begun anew further on
            rotations[index] = replace(own, first_SC=own.first_SC[:_NEAR_BY], second_SC=own.second_SC[:_NEAR_BY])
    return rotations[0], rotations[1]


def _match(table_MPD: Tensor, x_MD: Tensor, near_M: Tensor) -> Tensor:
    gaps = (table_MPD - x_MD[:, None].to(table_MPD.dtype)).abs().amax(-1) / table_MPD.abs().max()
    places = torch.arange(table_MPD.shape[1], device=x_MD.device)
    far = (places - near_M[:, None]).abs().double().masked_fill(gaps > _NEAR, math.inf)
    best, at = far.min(1)
    return torch.where(best < math.inf, at.double(), math.nan)


def _find_rotated(rotation: Rotation, plain_MHK: Tensor, x_MHK: Tensor, near_M: Tensor) -> Tensor:
    """Find by how many places vectors are rotated: slow pairs say roughly, faster ones ever more exactly."""
    a, b = rotation.channels
    start, end = (torch.complex(x[..., a], x[..., b]) for x in (plain_MHK.double(), x_MHK))
    ratio = (end * start.conj()).sum(1) / (start.abs().square().sum(1) + 1e-30)
    rest = (end - ratio[:, None] * start).abs().amax((1, 2)) / start.abs().max()
    still = torch.ones(x_MHK.shape[-1], dtype=torch.bool, device=x_MHK.device)
    still[a], still[b] = False, False
    if still.any():
        rest = rest.maximum((x_MHK - plain_MHK)[..., still].abs().amax((1, 2)) / plain_MHK.abs().max())
    speeds, angle = rotation.speeds_C, ratio.angle()
    slow_to_fast = [pair for pair in speeds.abs().argsort().tolist() if abs(float(speeds[pair])) > 1e-7]
    period = 2 * math.pi / abs(float(speeds[slow_to_fast[0]]))
    reach = min(64, math.ceil(2.2 * float(near_M.abs().max()) / period))
    place = near_M.double()[:, None] + period * torch.arange(-reach, reach + 1, device=x_MHK.device)
    for pair in slow_to_fast:
        speed, own = float(speeds[pair]), angle[:, pair, None]
        place = (own + 2 * math.pi * ((place * speed - own) / (2 * math.pi)).round()) / speed
    place = torch.where((place - place.round()).abs() < 0.02, place.round(), place)
    off = torch.remainder(place[..., None] * speeds - angle[:, None] + math.pi, 2 * math.pi) - math.pi
    fits = (off.abs() < 1e-3 + 1e-4 * place.abs()[..., None] * speeds.abs()).all(-1)
    fits &= ((rest < 1e-3) & ((ratio.abs() - 1).abs() < 1e-2).all(1))[:, None]
    far = (place - near_M[:, None]).abs().masked_fill(~fits, math.inf)
    best, at = far.min(1)
    return torch.where(best < math.inf, place.gather(1, at[:, None])[:, 0], math.nan)
