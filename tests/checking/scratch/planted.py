"""Mistakes planted one at a time in ``gpt.py``, each with what has to be said of it."""

# ruff: noqa: E501  (a mistake is one line of a table)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from clockhands.checking.checks.check import select
from clockhands.checking.models.adapter import ModuleAdapter
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.verdict.judge import run_checks
from clockhands.checking.verdict.outcome import Outcome

SOURCE = Path(__file__).with_name("gpt.py").read_text("utf8")
CHECKED = ("causal", "order", "cache", "padding", "batch", "positions", "shift", "packing", "state", "length")


@dataclass(frozen=True)
class Planted:
    """A piece of the text, what stands there instead, and what one of the causes has to say: all of ``says``."""

    scheme: str
    old: str
    new: str
    says: tuple[str, ...]
    window: int = 0

    @property
    def name(self) -> str:
        return f"{self.scheme}: {self.new.strip()[:70]}"

    def examine(self, checks: Sequence[str] = CHECKED) -> list[Outcome]:
        """Return the outcomes of checks, by default of all of behaviour."""
        return examine(build(self.scheme, self.window, (self.old, self.new)), checks)

    def is_named(self, outcomes: list[Outcome]) -> bool:
        """Whether a cause says all that it has to."""
        causes = [o.cause.lower() for o in outcomes if o.verdict == "FAIL"]
        return any(all(part.lower() in cause for part in self.says) for cause in causes)


def build(scheme: str, window: int = 0, *edits: tuple[str, str]) -> ModuleAdapter:
    """Return the GPT of a scheme with edits of its text."""
    source = SOURCE
    for old, new in (('SCHEME = "rope"', f'SCHEME = "{scheme}"'), ("WINDOW = 0", f"WINDOW = {window}"), *edits):
        assert source.count(old) == 1, f"{old}: {source.count(old)} places"
        source = source.replace(old, new)
    module = ModuleType("gpt")
    exec(source, vars(module))
    torch.manual_seed(0)
    return ModuleAdapter(module.GPT(), absolute=scheme in ("learned", "sinusoidal"))


def examine(adapter: ModuleAdapter, checks: Sequence[str]) -> list[Outcome]:
    """Return the outcomes of checks on a model."""
    (subject,) = from_model(adapter)
    return run_checks(subject, select(checks))


ARANGE = "torch.arange(past, past + new, device=ids.device)"
GIVEN = "            return positions\n"
COUNTED, SLICED = "(mask.long().cumsum(1) - 1).clamp(min=0)", "return counted[:, -new:]"
CAUSAL, WINDOWED, MASKED = (
    "(keys <= queries)[None, None]",
    "(queries - keys < WINDOW)[None, None]",
    "(mask[:, None, None, :] if mask.dim() == 2 else mask).bool()",
)
KROT, QROT = "k = rotate(k, places)", "q = rotate(q, places)"
ADD, OLD = "k, v = cache.add(self.number, k, v)", "k, v = torch.cat([old[0], k], 2), torch.cat([old[1], v], 2)"
DISTANCE, BIASED = "places[:, None, :, None] - key_places[:, None, None, :]", "bias = bias - (slopes"
TABLE, WAVES = "x = x + self.table(places)", "x = x + self.waves[places].to(x.dtype)"
PACKED = "document[:, None, :, None] == document[:, None, None, :]"
MASKED_OUT = 'bias = torch.zeros(keep.shape, dtype=x.dtype, device=x.device).masked_fill(~keep, float("-inf"))'
MIXED = "mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)"
ACROSS = """turns = places[..., None] * 100.0 ** (-torch.arange(24) / 24)
            cos, sin = (x.repeat(1, 1, 2).to(q.dtype) for x in (turns.cos(), turns.sin()))
            q, k = (t.transpose(1, 2).reshape(rows, new, WIDTH) for t in (q, k))
            q, k = (t * cos + torch.cat([-t[..., 24:], t[..., :24]], -1) * sin for t in (q, k))
            q, k = (t.view(rows, new, HEADS, HEAD).transpose(1, 2) for t in (q, k))"""
SPEEDS = "angles = places[:, None, :, None].float() * speeds"

PLANTED = tuple(Planted(*fault) for fault in (
    # where a token stands when it is decoded, or read in a later chunk
    ("rope", ARANGE, "torch.arange(past + (past > 0), past + (past > 0) + new, device=ids.device)", ("decode step", "1 place too late")),
    ("learned", ARANGE, "torch.arange(past - (past > 0), past - (past > 0) + new, device=ids.device)", ("decode step", "1 place too early")),
    ("sinusoidal", ARANGE, "torch.arange(new, device=ids.device)", ("position 0",)),
    ("rope", ARANGE, "torch.arange(new, device=ids.device)", ("position 0",)),
    ("rope", ARANGE, "torch.arange(past * (new == 1), past * (new == 1) + new, device=ids.device)", ("later chunk", "position 0")),
    ("learned", ARANGE, "torch.arange(min(past, 12), min(past, 12) + new, device=ids.device)", ("holds positions at 12",)),
    ("sinusoidal", ARANGE, "torch.arange(past // 2, past // 2 + new, device=ids.device)", ("half its position, rounded down",)),
    ("learned", ARANGE, "torch.arange(2 * past, 2 * past + new, device=ids.device)", ("length of the cache, which is counted twice",)),
    ("rope", "places = self.find_places(ids, mask, positions, past)", "places = self.find_places(ids, mask, positions, past)\n        places = places + past if positions is not None and cache is not None else places", ("too late",)),
    ("learned", GIVEN, "            return positions if past == 0 else torch.arange(past, past + new, device=ids.device).expand(rows, new)\n", ("pads",)),
    # positions under a mask
    ("learned", COUNTED, "torch.arange(mask.shape[1], device=ids.device).expand_as(mask)", ("5 places too late",)),
    ("learned", COUNTED, "mask.long().cumsum(1)", ("before 5 pads the text stands 1 place too late",)),
    ("rope", SLICED, "return counted[:, :new]", ("position 0",)),
    ("sinusoidal", SLICED, "return counted[:1, -new:].expand(rows, new)", ("first row",)),
    ("learned", SLICED, "return counted.amax(0, keepdim=True)[:, -new:].expand(rows, new)", ("longest row",)),
    ("rope", GIVEN, "            return positions[:1].expand(rows, new)\n", ("first row",)),
    ("learned", GIVEN, "            return positions + 1\n", ("given stands 1 place too late",)),
    ("learned", GIVEN, "            return positions - positions.amin(1, keepdim=True)\n", ("position 0",)),
    ("rope", GIVEN, "            return torch.arange(past, past + new, device=ids.device).expand(rows, new)\n", ("given", "without them")),
    # positions that end, turn or are rounded
    ("rope", SPEEDS, "angles = places.clamp(max=63)[:, None, :, None].float() * speeds", ("holds positions at 63",)),
    ("rope", SPEEDS, "angles = (places % 64)[:, None, :, None].float() * speeds", ("begins positions anew after 63",)),
    ("rope", SPEEDS, "angles = places.to(torch.uint8)[:, None, :, None].float() * speeds", ("positions rounded to 8 bits",)),
    ("rope", SPEEDS, "angles = places.to(torch.int8)[:, None, :, None].float() * speeds", ("8 bits with a sign",)),
    ("rope", SPEEDS, "angles = places.bfloat16()[:, None, :, None].float() * speeds", ("bfloat16",)),
    ("rope", SPEEDS, "angles = places.half()[:, None, :, None].float() * speeds", ("float16",)),
    ("rope", SPEEDS, "angles = places.to(torch.int16)[:, None, :, None].float() * speeds", ("16 bits",)),
    ("rope", SPEEDS, "angles = places[:, None, :, None].float() * speeds / places.shape[1]", ("length",)),
    ("learned", TABLE, "x = x + self.table(places.amax(1, keepdim=True) - places)", ("from the end",)),
    ("sinusoidal", WAVES, "x = x + self.waves[torch.arange(len(x))][:, None].to(x.dtype)", ("row of the batch",)),
    # masks
    ("rope", CAUSAL, "(keys <= queries + 1)[None, None]", ("a text sees 1 later key",)),
    ("alibi", CAUSAL, "(keys < queries)[None, None]", ("itself",)),
    ("learned", CAUSAL, "(keys <= queries + (past > 0))[None, None]", ("later chunk", "1 later")),
    ("rope", CAUSAL, "(keys <= queries - past)[None, None]", ("decode step", "misses")),
    ("alibi", CAUSAL, "((keys <= queries) | (past > 0))[None, None]", ("later chunk", "later")),
    ("rope", WINDOWED, "(queries - keys < WINDOW + (past > 0))[None, None]", ("1 key", "window"), 16),
    ("learned", WINDOWED, "(queries - keys < WINDOW - (past > 0))[None, None]", ("misses 1 key",), 16),
    ("alibi", WINDOWED, "((queries - keys < WINDOW) | (past > 0))[None, None]", ("window",), 16),
    ("rope", MASKED, "(mask[:, None, None, :] if past == 0 else torch.ones_like(mask[:, None, None, :])).bool()", ("pads",)),
    ("alibi", MASKED, "torch.ones_like(mask)[:, None, None, :].bool()", ("reads the pads",)),
    ("learned", MASKED, "(mask[:1, None, None, :] if mask.dim() == 2 else mask).bool()", ("each decode step is masked as the first row is",)),
    ("rope", MASKED, "(mask.roll(-1, 1)[:, None, None, :] if mask.dim() == 2 else mask).bool()", ("pads", "not see itself at 1 of 20 places")),
    ("rope", PACKED, "document[:, None, :, None] >= document[:, None, None, :]", ("document",)),
    ("learned", "packed = positions is not None and cache is None", "packed = False and cache is None", ("document",)),
    # the cache
    ("rope", OLD, "k, v = torch.cat([k, old[0]], 2), torch.cat([v, old[1]], 2)", ("order",)),
    ("learned", OLD, "k, v = torch.cat([old[0][:, :, 1:], old[0][:, :, -1:], k], 2), torch.cat([old[1][:, :, 1:], old[1][:, :, -1:], v], 2)", ("misses", "the oldest and sees 3 keys more than once")),
    ("rope", "self.layers[layer] = (k, v)", "k = torch.cat([k[:, :, :-20] * 0, k[:, :, -20:]], 2)\n        self.layers[layer] = (k, v)", ("no token",)),
    ("alibi", "self.layers[layer] = (k, v)", "self.layers[layer] = (k, v) if layer else (k * (k.shape[2] < 12), v)", ("no token",)),
    ("rope", "old = self.layers[layer]", "old = self.layers[layer] and tuple(t[:, :, : self.seen] for t in self.layers[0])", ("layer",)),
    # the rotation, the table and the bias
    ("rope", ADD, "k, v = cache.add(self.number, k, v); k = rotate(k, torch.arange(k.shape[2])[None]) if cache.seen else k", ("keys", "twice")),
    ("rope", KROT, "k = rotate(k, places) if new > 1 else k", ("decode step", "keys")),
    ("rope", QROT, "q = rotate(q, places if new > 1 else 0 * places)", ("decode step", "queries")),
    ("rope", KROT, "k = rotate(k, -places)", ("the other way",)),
    ("rope", KROT, "pass", ("keys", "not rotate")),
    ("rope", "a * sin + b * cos", "a * sin - b * cos", ("sign",)),
    ("alibi", DISTANCE, "torch.arange(new, device=x.device)[None, None, :, None] - torch.arange(k.shape[2], device=x.device)[None, None, None, :] * (new > 1)", ("no bias",)),
    ("alibi", BIASED, "bias = bias - (1 + (new == 1)) * (slopes", ("slopes doubled",)),
    ("alibi", DISTANCE, "(places[:, None, :, None] - key_places[:, None, None, :]) * 8 / k.shape[2]", ("slopes",)),
    ("learned", TABLE, "x = x + self.table(places) * (1 + (x.shape[1] == 1))", ("decode step", "twice")),
    ("sinusoidal", WAVES, "x = x + self.waves[places].to(x.dtype) * (x.shape[1] > 1)", ("decode step", "no position")),
    ("learned", "x = self.tokens(ids) * math.sqrt(WIDTH)", "x = self.tokens(ids) * (math.sqrt(WIDTH) if past == 0 else 1.0)", ("decode step", "does not multiply its tokens by √48")),
    ("rope", "attn_mask=bias)", "attn_mask=bias, scale=math.log(k.shape[2] + 1) / HEAD)", ("logits of attention",)),
    ("rope", "[(k[:, :, :-tokens]", "[(k[:, :, tokens:]", ("values", "other tokens")),
    ("learned", "self.layers = [(k[rows], v[rows]) for k, v in self.layers]", "self.layers = [(k, v) for k, v in self.layers]", ("other row",)),
    # of one layer, across layers and heads; before and outside attention; masks that let something through
    ("rope", QROT, "places = places + (self.number > 0 and cache is not None and cache.seen > 0); q = rotate(q, places)", ("decode step", "1 place too late", "in layer 2 alone")),
    ("learned", "x = self.add_position(x, places)", "x = self.add_position(x, places); x = x + 0.5 * F.pad(x, (0, 0, 0, 1))[:, 1:]", ("first block", "later tokens")),
    ("sinusoidal", "x = self.add_position(x, places)", "x = self.add_position(x, places); x = x - x.mean(1, keepdim=True)", ("first block", "later tokens")),
    ("rope", f"{QROT}\n            {KROT}", ACROSS, ("across heads",)),
    ("rope", KROT, "k = rotate(k.unflatten(-1, (2, -1)).mT.flatten(-2), places).unflatten(-1, (-1, 2)).mT.flatten(-2)", ("queries rotate neighbouring pairs, keys halves",)),
    ("rope", f"{QROT}\n            {KROT}", "q, k = (rotate(t.transpose(1, 2), torch.arange(HEADS)[None]).transpose(1, 2) for t in (q, k))", ("no position enters",)),
    ("rope", MASKED_OUT, "bias = torch.zeros(keep.shape, dtype=x.dtype, device=x.device).masked_fill(~keep, -5.0)", ("all later tokens",)),
    ("rope", MIXED, "mixed = (q @ k.mT / HEAD**0.5).masked_fill(~keep, -1e-9).softmax(-1) @ v", ("all later tokens",)),
    ("alibi", DISTANCE, "(torch.arange(k.shape[2])[-new:, None] - torch.arange(k.shape[2])).to(x.device)[None, None]", ("does not take its distances from the positions that are given",)),
    ("alibi", DISTANCE, "(torch.arange(new)[:, None] - torch.arange(k.shape[2])).abs().to(x.device)[None, None]", ("later chunk", "distances as if it began the text")),
))  # fmt: skip
