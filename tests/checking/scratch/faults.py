"""One mistake at a time in ``model.py``, each with the checks that were written for its mechanism.

Left out is what no law can see, because the model stays consistent with itself: another base, another sign of all
angles, another slope. For those there is ``clockhands check --against``.
"""

# ruff: noqa: E501  (a fault is one line of a table)

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from clockhands.checking.checks.check import select
from clockhands.checking.models.adapter import ModuleAdapter
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.verdict.judge import run_checks

SCHEMES = ("learned", "rope", "alibi", "t5")
SOURCE = Path(__file__).with_name("model.py").read_text("utf8")
STEPS, FUTURE, LEFT = "cache.steps cache.chunks", "causal.future causal.prefix", "padding.content padding.left.mask"


@dataclass(frozen=True)
class Fault:
    """A piece of the text, what stands there instead, and the checks that name the mechanism (any of them).

    ``declared`` is what the author says of the model, so that it is taken as meant.
    """

    name: str
    old: str
    new: str
    named_by: str = ""
    schemes: tuple[str, ...] = SCHEMES
    declared: str = ""

    def apply(self, source: str) -> str:
        """Return the source with the mistake. Raises AssertionError if its place is not there once."""
        assert source.count(self.old) == 1, f"{self.name}: {source.count(self.old)} places"
        declared = f"\n\nModel.{self.declared} = True\n" if self.declared else ""
        return source.replace(self.old, self.new) + declared


def build(scheme: str, source: str = SOURCE, **numbers: str) -> list[ModuleAdapter]:
    """Return the model of a scheme from its text, and the view of its source side if it has one, at initial weights."""
    for name, value in {"SCHEME": f'"{scheme}"', **numbers}.items():
        lines = source.split("\n")
        source = "\n".join(f"{name} = {value}" if line.startswith(f"{name} = ") else line for line in lines)
    module = ModuleType("scratch")
    exec(source, vars(module))
    torch.manual_seed(0)
    model = module.Model()
    decoder = [ModuleAdapter(model)]
    return [*decoder, ModuleAdapter(module.Source(model), per_token=False)] if scheme == "t5" else decoder


def failures(adapters: list[ModuleAdapter], only: list[str] | None = None) -> set[str]:
    """Return the checks that fail, of all or of ``only``; ``broken`` if the model cannot be called at all."""
    failing: set[str] = set()
    for adapter in adapters:
        try:
            (subject,) = from_model(adapter)
        except Exception:  # a model may raise anything
            return {"broken"}
        failing |= {outcome.check for outcome in run_checks(subject, select(only)) if outcome.verdict == "FAIL"}
    return failing


TRIL, PAST, ARANGE = (
    ".tril(total - new)",
    "past = 0 if cache is None else cache.length",
    "torch.arange(past, past + new",
)
MASK, LEAST, ROOT = "mask[:, None, None, :].bool())", "torch.finfo(scores.dtype).min", "/ math.sqrt(HEAD)"
KEPT, JOINED, TAIL = (
    "self.k[index], self.v[index] = k, v",
    "torch.cat([self.k[index], k], 2)",
    "self.head(self.norm(x))",
)
FILL, SOFT = "scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)\n", "scores.softmax(-1)"
MERGE, TABLE, WORDS = (
    "mixed.transpose(1, 2).flatten(2)",
    'x = self.embed(ids)\n        if SCHEME == "learned"',
    "self.embed(ids)",
)
EVERYWHERE = (
    Fault("the next token is seen", TRIL, ".tril(total - new + 1)", FUTURE),
    Fault("no causal mask", TRIL, "", FUTURE),
    Fault("a token does not see itself", TRIL, ".tril(total - new - 1)", FUTURE),
    Fault("the mask the wrong way round", TRIL, ".triu(total - new)", FUTURE),
    Fault("the mask begins at the top left", TRIL, ".tril()", STEPS),
    Fault("the mask ignores what is cached", TRIL, ".tril(total - new if new == 1 else 0)", "cache.chunks"),
    Fault("masked scores are 0", LEAST, "0.0", FUTURE),
    Fault("masked scores are -1", LEAST, "-1.0", FUTURE),
    Fault("masked scores are -5", LEAST, "-5.0", FUTURE),
    Fault("the mask inverted", "masked_fill(~allowed", "masked_fill(allowed", FUTURE),
    Fault("masked after the softmax", FILL, "keep = allowed\n", FUTURE),
    Fault("softmax over the queries", SOFT, "scores.softmax(-2)", FUTURE),
    Fault("softmax over the heads", SOFT, "scores.softmax(1)", FUTURE),
    Fault("heads cut across tokens", "x.unflatten(-1, (HEADS, HEAD)).transpose(1, 2)", "x.reshape(len(x), HEADS, -1, HEAD)", FUTURE),
    Fault("heads joined across tokens", MERGE, "mixed.reshape(len(mixed), -1, WIDTH)", FUTURE),
    Fault("a mean over the text", TABLE, TABLE.replace(WORDS, f"{WORDS}; x = x + x.mean(1, keepdim=True)"), FUTURE),
    Fault("a mean over the batch", TABLE, TABLE.replace(WORDS, f"{WORDS}; x = x + x.mean(0, keepdim=True)"), "batch.alone"),
    Fault("rows normalised together", TAIL, f"{TAIL} - x.mean((0, 2), keepdim=True)", "batch.alone"),
    Fault("the last state normalised over the text", TAIL, "self.head(self.norm(x - x.mean(1, keepdim=True)))", FUTURE),
    Fault("dropout left on", "self.o(mixed", "self.o(nn.functional.dropout(mixed, 0.1)", "deterministic"),
    Fault("scaled by the number of keys", ROOT, "/ math.sqrt(k.shape[2])", FUTURE),
    Fault("scaled by the number of queries", ROOT, "/ math.sqrt(q.shape[2])", FUTURE),
    Fault("scaled by the logarithm of the length", ROOT, "/ math.sqrt(HEAD) * math.log(2 + k.shape[2])", FUTURE),
    Fault("cached tokens not counted", ARANGE, "torch.arange(0, new", STEPS),
    Fault("one too many after the prompt", ARANGE, "torch.arange(past + (past > 0), past + (past > 0) + new", STEPS, SCHEMES[:3]),
    Fault("one too few after the prompt", ARANGE, "torch.arange(past - (past > 0), past - (past > 0) + new", STEPS),
    Fault("a second chunk begins anew", ARANGE, "torch.arange(past * (new == 1), past * (new == 1) + new", "cache.chunks"),
    Fault("positions of the mask cut at its beginning", "[:, past : past + new]", "[:, :new]", "cache.mask"),
    Fault("pads are read", MASK, "torch.ones_like(mask)[:, None, None, :].bool())", LEFT),
    Fault("the padding mask inverted", MASK, "~mask[:, None, None, :].bool())", "padding.right"),
    Fault("the padding mask of the first row", MASK, "mask[:1, None, None, :].bool())", "cache.padded cache.prefill batch.unequal"),
    Fault("pads masked as queries", MASK, "mask[:, None, -new:, None].bool())", LEFT),
    Fault("the padding mask in place of the causal one", "allowed & (mask if", "allowed.logical_or(mask if", "padding.right"),
    Fault("pads read when decoding", MASK, "(mask[:, None, None, :].bool() | (past > 0 and new == 1)))", "cache.padded cache.left_mask"),
    Fault("pads read in later chunks", MASK, "(mask[:, None, None, :].bool() | (past > 0 and new > 1)))", "cache.prefill"),
    Fault("a block mask ignored", "mask if mask.dim() == 4", "allowed if mask.dim() == 4", "packing.block_mask"),
    Fault("a block mask transposed", "mask if mask.dim() == 4", "mask.mT if mask.dim() == 4", "packing.block_mask"),
    Fault("explicit positions overwritten", "if positions is None:\n            positions = torch", "if mask is None:\n            positions = torch", "positions.matter"),
    Fault("new keys before the old", JOINED, "torch.cat([k, self.k[index]], 2)", STEPS),
    Fault("new values before the old", "torch.cat([self.v[index], v], 2)", "torch.cat([v, self.v[index]], 2)", STEPS),
    Fault("a ring that turns too early", KEPT, f"k = k.roll(1, 2) if k.shape[2] > 20 else k\n        {KEPT}", STEPS),
    Fault("the oldest value lost", KEPT, f"v = torch.cat([v[:, :, :1] * (v.shape[2] < 20), v[:, :, 1:]], 2)\n        {KEPT}", STEPS),
    Fault("the cache in half precision", KEPT, f"k, v = k.bfloat16().to(k.dtype), v.bfloat16().to(v.dtype)\n        {KEPT}", STEPS),
    Fault("one cache for all layers", KEPT, "self.k[0], self.v[0] = k, v", STEPS),
    Fault("a chunk overwrites the cache", "if index in self.k:", "if index in self.k and k.shape[2] == 1:", "cache.chunks"),
    Fault("the first token is not cached", KEPT, f"{KEPT}\n        self.v[index] = torch.cat([v[:, :, :1] * 0, v[:, :, 1:]], 2)", STEPS),
    Fault("keys of rejected drafts stay", "{i: k[:, :, :-tokens]", "{i: k[:, :, tokens:]", "cache.rollback"),
    Fault("values of rejected drafts stay", "{i: v[:, :, :-tokens]", "{i: v[:, :, tokens:]", "cache.rollback"),
    Fault("positions of rejected drafts stay", "self.at = self.at[:, :-tokens]", "pass", "cache.rollback"),
    Fault("keys do not follow the beams", "{i: k[rows]", "{i: k", "cache.reorder"),
    Fault("values do not follow the beams", "{i: v[rows]", "{i: v", "cache.reorder"),
    Fault("counted beside the cache", PAST, "past = 0 if cache is None or cache.length == 0 else self.read; self.read = past + new", "cache.rollback cache.prefix"),
    Fault("louder after a long text", TAIL, f'{TAIL} * (1 + 0.1 * (setattr(self, "grown", max(self.grown, new)) or self.grown > 50))', "state.short state.medium"),
    Fault("a single token squared", TAIL, f"{TAIL} * (1 + (new == 1) * 0.1)", "length.short cache.steps"),
)  # fmt: skip
_AT = "at[:, None, :, None].float()"
_ROTATED = "q, k = self.rotate(q, at), self.rotate(k, at)"
_BOTH = "angles.cos().repeat(1, 1, 1, 2), angles.sin().repeat(1, 1, 1, 2)"
_FREQUENCIES = "self.inv_freq.to(x.device)"
ROPE = tuple(Fault(*fault, schemes=("rope",)) for fault in (
    ("angles of pairs, rotation of halves", _BOTH, "angles.cos().repeat_interleave(2, -1), angles.sin().repeat_interleave(2, -1)", "shift"),
    ("one sign lost", "[-second, first]", "[second, first]", "shift"),
    ("halves not exchanged", "[-second, first]", "[-first, second]", "shift"),
    ("sines for cosines", _BOTH, "angles.sin().repeat(1, 1, 1, 2), angles.sin().repeat(1, 1, 1, 2)", "shift"),
    ("keys not rotated", _ROTATED, "q, k = self.rotate(q, at), k", "shift"),
    ("queries not rotated", _ROTATED, "q, k = q, self.rotate(k, at)", "shift"),
    ("values rotated", _ROTATED, f"{_ROTATED}; v = self.rotate(v, at)", "shift"),
    ("keys rotated the other way", _ROTATED, "q, k = self.rotate(q, at), self.rotate(k, -at)", "shift"),
    ("keys in the cache rotated again", "k, v = cache.extend(index, k, v)", "k, v = cache.extend(index, k, v)\n            k = self.rotate(k, keys_at)", STEPS),
    ("positions of the first row", _AT, "at[:1, None, :, None].float()", "cache.padded cache.prefill"),
    ("rotated over the heads", _AT, "torch.arange(x.shape[1], device=x.device)[None, :, None, None].float()", "positions.matter"),
    ("nothing rotated", _AT, f"0 * {_AT}", "positions.matter"),
    ("positions made in rotate", _AT, "torch.arange(x.shape[2], device=x.device)[None, None, :, None].float()", "positions.matter cache.steps"),
    ("positions a share of the length", _AT, f"{_AT} / at.shape[1]", FUTURE),
    ("positions held at 31", _AT, "at.clamp(max=31)[:, None, :, None].float()", "shift"),
    ("positions modulo 32", _AT, "(at % 32)[:, None, :, None].float()", "shift"),
    ("positions in 8 bits", _AT, "at.to(torch.uint8)[:, None, :, None].float()", "shift"),
    ("positions in bfloat16", _AT, "at.bfloat16()[:, None, :, None].float()", "shift"),
    ("positions in float16", _AT, "at.half()[:, None, :, None].float()", "shift"),
    ("positions in 16 bits", _AT, "at.to(torch.int16)[:, None, :, None].float()", "shift"),
    ("angles in the precision of the weights", f"{_AT} * {_FREQUENCIES}", "at[:, None, :, None].to(x.dtype) * self.inv_freq.to(x.dtype)", "precision.distance"),
    ("angles by a product", f"{_AT} * {_FREQUENCIES}", f"{_AT} @ {_FREQUENCIES}[None]", "precision.autocast"),
    ("frequencies by the longest position", _FREQUENCIES, f"{_FREQUENCIES} * 32 / max(32, int(at.max()) + 1)", FUTURE + " shift"),
    ("frequencies kept from the longest text", "angles = at", "self.inv_freq = self.inv_freq * (0.5 if at.shape[1] > 50 else 1.0)\n        angles = at", "state.short state.medium"),
    ("tables kept in the first precision", _BOTH, "*self.__dict__.setdefault('kept', {}).setdefault((at.shape, int(at.sum())), [t.repeat(1, 1, 1, 2).to(x.dtype) for t in (angles.cos(), angles.sin())]),", "precision.order"),
))  # fmt: skip
_DISTANCE = "(at[:, None, :, None] - keys_at[:, None, None, :]).float()"
_ADDED = "scores = scores - ("
ALIBI = tuple(Fault(*fault, schemes=("alibi",)) for fault in (
    ("no bias at a single step", _DISTANCE, f"{_DISTANCE} * (q.shape[2] > 1)", STEPS),
    ("the bias twice with a cache", _ADDED, "scores = scores - (1 + (cache is not None)) * (", STEPS),
    ("distances of places in the row", _DISTANCE, "(torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).float()[None, None]", "positions.matter"),
    ("distances a share of the length", _DISTANCE, f"{_DISTANCE} / k.shape[2]", FUTURE),
    ("distances from the new tokens alone", "- keys_at[:, None, None, :]).float()", "- at[:, None, None, :]).float()", STEPS),
    ("a column in low precision", _DISTANCE, "-keys_at[:, None, None, :].float()", "precision.long"),
    ("slopes for the rows of the batch", "self.slopes.to(x.device)[:, None, None]", "self.slopes.to(x.device)[: len(q), None, None, None]", "batch.alone"),
    ("slopes drawn down by a long text", _ADDED, f"self.slopes = self.slopes * (0.5 if q.shape[2] > 50 else 1.0)\n            {_ADDED}", "state.short state.medium"),
    ("the bias dropped", _ADDED, "scores = scores - 0 * (", "positions.matter"),
    ("slopes by the number of keys", _ADDED, "scores = scores - math.log(1 + k.shape[2]) * (", FUTURE),
    ("positions in 8 bits", _DISTANCE, "(at.to(torch.uint8)[:, None, :, None].float() - keys_at.to(torch.uint8)[:, None, None, :].float())", "shift"),
    ("positions in bfloat16", _DISTANCE, "(at.bfloat16()[:, None, :, None] - keys_at.bfloat16()[:, None, None, :]).float()", "shift"),
))  # fmt: skip
_LOOKED_UP = "self.pos_emb(positions)"
LEARNED = tuple(Fault(*fault, schemes=("learned",)) for fault in (
    ("the table read from the beginning", _LOOKED_UP, "self.pos_emb(torch.arange(new, device=ids.device))", STEPS),
    ("a table too short", "self.pos_emb = nn.Embedding(LONGEST", "self.pos_emb = nn.Embedding(LONGEST - 2", "length.claimed"),
    ("positions of the first row", _LOOKED_UP, "self.pos_emb(positions[:1])", "cache.padded cache.prefill"),
    ("counted from the end", _LOOKED_UP, "self.pos_emb(total - 1 - positions)", FUTURE),
    ("positions modulo 32", _LOOKED_UP, "self.pos_emb(positions % 32)", "shift"),
    ("positions held at the last but one", _LOOKED_UP, "self.pos_emb(positions.clamp(max=LONGEST - 2))", "length.claimed"),
    ("the table not added", _LOOKED_UP, f"0 * {_LOOKED_UP}", "positions.matter"),
    ("not added at a single step", _LOOKED_UP, f"(new > 1) * {_LOOKED_UP}", STEPS),
    ("indexed by the row", _LOOKED_UP, "self.pos_emb(torch.arange(rows, device=ids.device))[:, None]", "batch.alone"),
    ("indexed by the token", _LOOKED_UP, "self.pos_emb(ids)", "positions.matter"),
    ("counted from 1 under a mask", "(mask.long().cumsum(-1) - 1)", "mask.long().cumsum(-1)", "padding.right"),
    ("pads at -1", "- 1).clamp(min=0)[:, past", "- 1)[:, past", LEFT),
    ("explicit positions from 1", "past = 0", "positions = None if positions is None else positions + 1\n        past = 0", "positions.explicit"),
))  # fmt: skip
_BUCKETS = "keys_at[:, None, :] - at[:, :, None]"
_CROSS, _SEEN = "source_allowed, None, None)\n        return x", "seen[:, None, None, :]"
T5 = tuple(Fault(*fault, schemes=("t5",)) for fault in (
    ("all of the past in one bucket", "(-distance).clamp(min=0)", "distance.clamp(min=0)", "positions.matter"),
    ("queries counted from the beginning", _BUCKETS, "keys_at[:, None, :] - torch.arange(at.shape[1])[None, :, None]", STEPS),
    ("queries and keys exchanged", ".permute(0, 3, 1, 2)", ".permute(0, 3, 2, 1)", STEPS),
    ("buckets by the length", "math.log(64 / exact)", "math.log((8 + distance.shape[-1]) / exact)", FUTURE),
    ("the bias dropped when decoding", "if bias is not None:", "if bias is not None and q.shape[2] > 1:", STEPS),
    ("pads of the source read in cross-attention", _CROSS, _CROSS.replace("source_allowed", "torch.ones_like(source_allowed)"), "padding.right padding.content"),
    ("pads of the source read in the encoder", "layer(index, x, at, at, source_allowed", "layer(index, x, at, at, torch.ones_like(source_allowed)", "padding.right padding.content"),
    ("the mask of the source inverted", "else mask.bool()", "else ~mask.bool()", "padding.right"),
    ("the mask of the source of the first row", _SEEN, "seen[:1, None, None, :]", "batch.unequal"),
    ("the source's bias a share of its length", "self.make_bias(self.source_bias, at, at, True)", "self.make_bias(self.source_bias, at, at, True) * 12 / length", "padding.right"),
    ("the source normalised over its length", "self.source_norm(x),", "self.source_norm(x - x.mean(1, keepdim=True)),", "padding.right"),
    ("rows of the source mixed", "self.source_norm(x),", "self.source_norm(x + x.mean(0, keepdim=True)),", "batch.alone"),
))  # fmt: skip
FAULTS = (*EVERYWHERE, *ROPE, *ALIBI, *LEARNED, *T5)

_LAST = "scores.softmax(-1) @ v"
VARIANTS = (
    Fault("as it is", "import math\n", "import math \n"),
    Fault("a sink", _LAST, "torch.cat([scores, torch.zeros_like(scores[..., :1])], -1).softmax(-1)[..., :-1] @ v"),
    Fault("a window", TRIL, f"{TRIL}.triu(total - new - 15)"),
    Fault("tokens scaled", TABLE, TABLE.replace(WORDS, f"{WORDS} * math.sqrt(WIDTH)")),
    Fault("softmax in float32", _LAST, "scores.float().softmax(-1).to(v.dtype) @ v"),
    Fault("capped logits", TAIL, f"10 * torch.tanh({TAIL} / 10)"),
    Fault("masked by -1e9", LEAST, "-1e9"),
    Fault("a registered table", "self.inv_freq = 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD)",
          'self.register_buffer("turns", 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD))\n'
          "            self.inv_freq = 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD)", schemes=("rope",)),
    Fault("declared dynamic NTK", "self.inv_freq.to(x.device)",
          "(self.inv_freq.to(x.device) * ((at.amax(1) + 1) / 32).clamp(min=1)[:, None, None, None]"
          " ** (-torch.arange(0, HEAD, 2, device=x.device).float() / (HEAD - 2)))",
          schemes=("rope",), declared="stretches"),
    Fault("another base", "10000.0 **", "500.0 **", schemes=("rope",)),
)  # fmt: skip
"""Correct models: what authors do, and is no mistake."""
