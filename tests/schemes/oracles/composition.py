"""The oracle of schemes side by side, made of those of its parts; and of sinks and chunks."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clockhands.schemes import read_part
from tests.schemes.oracles.registry import ORACLES, Case, Expected, causal_mask, oracle
from tests.schemes.oracles.rotary import turned_values


@oracle("chunks", {"size": 4}, {"size": 3}, {"size": 3, "axis": 0}, {"size": 2, "axis": 1})
def chunks(case: Case) -> Expected:
    """Llama 4's model code, along each coordinate: a token sees its own chunk."""
    size = case.options.get("size", 8192)

    def number(pos: Tensor) -> list[int]:
        return [math.floor(p / size) for p in case.coordinates(pos)]

    asked, found = ([number(place) for place in pos] for pos in (case.qpos_S, case.kpos_T))
    return case.add(lambda h, i, j: 0.0 if asked[i] == found[j] else -math.inf)


@oracle("sinks", {"start": 2.0})
def sinks(case: Case) -> Expected:
    """gpt-oss' model code: one more logit under the fraction, and no value for it."""
    logits, out = case.scores(), torch.zeros_like(case.q_HSK)
    seen = causal_mask(*logits.shape[1:]) if case.causal else torch.ones(logits.shape[1:], dtype=torch.bool)
    for h in range(logits.shape[0]):
        for i in range(logits.shape[1]):
            shares = [math.exp(x) if seen[i, j] else 0.0 for j, x in enumerate(logits[h, i].tolist())]
            below = math.exp(float(case.scheme.sink_H[h].detach())) + sum(shares)
            out[h, i] = sum(share / below * v for share, v in zip(shares, case.v_HTK[h], strict=True))
    return Expected(logits_HST=logits, out_HSK=out)


@dataclass
class Later(Case):
    """A case whose logits other schemes have made already."""

    logits_HST: Tensor | None = None

    def scores(self) -> Tensor:
        assert self.logits_HST is not None
        return self.logits_HST.clone()


def count_coordinates(name: str, options: dict[str, Any]) -> int | None:
    """How many coordinates a scheme for several reads, which are the first; None for one that reads what there is."""
    if name in ("sinusoidal-axes", "axial", "mixed", "liere", "alibi-axes"):
        return int(options.get("axes", 2))
    return {"mrope": 3, "swin": 2, "log-cpb": 2}.get(name)


@oracle(
    "composition",
    {"schemes": ({"scheme": "rope", "base": 50.0, "fraction": 0.5}, {"scheme": "window", "left": 3})},
    {"schemes": ("rope", {"scheme": "window", "left": 2}, {"scheme": "temperature", "length": 3, "coefficient": 0.5})},
    {"schemes": ({"scheme": "rope", "layout": "interleaved"}, {"scheme": "chunks", "size": 4}, "sinks")},
    {"schemes": ({"scheme": "learned", "max_length": 16}, {"scheme": "t5", "num_buckets": 8, "max_distance": 6})},
    {"schemes": ("alibi", "sinks", {"scheme": "window", "left": 4})},
    {"schemes": ("sinusoidal", {"scheme": "temperature", "form": "log", "length": 2}, "kerple")},
    {"schemes": ("forgetting", "rope", {"scheme": "window", "left": 3})},
    {"schemes": ({"scheme": "shaw", "clip": 2, "values": False}, {"scheme": "window", "left": 3})},
    {"schemes": ({"scheme": "cope", "max_position": 3}, {"scheme": "window", "left": 3})},
    {"schemes": ({"scheme": "rope", "spectrum": "linear", "factor": 2.0}, "stick-breaking")},
    {"schemes": ({"scheme": "inkling", "extent": 7}, {"scheme": "chunks", "size": 4})},
    {"schemes": ("repo", {"scheme": "window", "left": 2}, "sinks")},
    {"schemes": ("axial", "sinks", {"scheme": "window", "left": 1})},
    {"schemes": ("mrope", {"scheme": "window", "left": 3, "axis": 3})},
    {"schemes": ("alibi-axes", {"scheme": "temperature", "length": 2, "coefficient": 0.5, "axis": 2}, "sinks")},
    {"schemes": ("log-cpb", {"scheme": "chunks", "size": 2}, {"scheme": "ssmax", "axis": 1})},
    {"schemes": ({"scheme": "rope", "values": True, "base": 50.0}, {"scheme": "window", "left": 3})},
)
def composition(case: Case) -> Expected:
    """Each hook in its order, by the oracles of the parts: their logits less the plain product is what they add."""
    encodings, adding, readers, weighing = [], [], [], []
    rotating, scale = None, torch.ones(*case.q_HSK.shape[:2], 1, dtype=torch.float64)
    for part, entry in zip(case.scheme.parts, case.options.get("schemes", ("rope", "window")), strict=True):
        name, options = read_part(entry)
        count = count_coordinates(name, options)
        qpos, kpos = (pos[..., :count] if count and pos.dim() > 1 else pos for pos in (case.qpos_S, case.kpos_T))
        own = dataclasses.replace(case, scheme=part, options=options, qpos_S=qpos, kpos_T=kpos)
        hooks = part.active_hooks()
        if name in ("temperature", "ssmax") and hooks == {"rotate"}:
            scale = scale * (ORACLES[name](own).logits_HST / case.scores())[..., :1]
        elif "encode" in hooks:
            encodings.append(ORACLES[name](own).encode_SP)
        elif "rotate" in hooks:
            rotating = (name, own)
        else:
            place = weighing if "weigh" in hooks else readers if "logits" in hooks else adding
            place.append((name, own))
    q = case.q_HSK * scale
    plain = dataclasses.replace(case, q_HSK=q).scores()
    logits = plain if rotating is None else ORACLES[rotating[0]](dataclasses.replace(rotating[1], q_HSK=q)).logits_HST
    for name, own in adding:
        logits = logits + ORACLES[name](dataclasses.replace(own, q_HSK=q)).logits_HST - plain
    out = None
    for name, own in (*readers, *weighing):
        fields = {field.name: getattr(own, field.name) for field in dataclasses.fields(own)} | {"q_HSK": q}
        expected = ORACLES[name](Later(**fields, logits_HST=logits))
        logits, out = expected.logits_HST, expected.out_HSK
    if rotating is not None and rotating[1].options.get("values"):
        half = case.v_HTK.shape[-1] // 2
        out = turned_values(case, logits, 2 * half, lambda h, p, c: p * 50.0 ** (-c / half), layout="half")
    return Expected(sum(encodings[1:], encodings[0]) if encodings else None, logits, out)
