"""Twenty-five mistakes that ports of models make, each with what has to be said of it, and ports that are right.

``python -m tests.checking.scratch.ports`` plants all of them and writes the page and the numbers of how many are
explained.
"""

# ruff: noqa: E501  (a port is one line of a table)

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clockhands.checking import against
from clockhands.checking.models.tiny import build_model, find, make_position_audible, tiny_config
from tests.checking.scratch.faults import SOURCE, build
from tests.checking.scratch.score import tell_measured

BASE, ROOT, TRIL = "10000.0 ** (-torch", " / math.sqrt(HEAD)", ".tril(total - new)"
ROTATED = "q, k = self.rotate(q, at), self.rotate(k, at)"
ROTATE = SOURCE[SOURCE.index("        angles = at[:, None, :, None].float()") : SOURCE.index("\n\nclass Block")]
PAIRS = """        angles = at[:, None, :, None].float() * self.inv_freq.to(x.device)
        cos, sin = angles.cos().repeat_interleave(2, -1), angles.sin().repeat_interleave(2, -1)
        turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        return (x.float() * cos + turned.float() * sin).to(x.dtype)
"""
HALF_HEAD = (
    ROTATE.replace("angles = at", "x, rest = x[..., :HEAD // 2], x[..., HEAD // 2 :]\n        angles = at")
    .replace("self.inv_freq", "self.inv_freq[::2]")
    .replace(
        "return (x.float() * cos + turned.float() * sin).to(x.dtype)",
        "return torch.cat([x * cos + turned * sin, rest], -1)",
    )
)
SLOPES = "2.0 ** (-8.0 * torch.arange(1, HEADS + 1).float() / HEADS)"
AT = "at[:, None, :, None].float()"
WINDOWED = TRIL + ".triu(total - new - 15)"


@dataclass(frozen=True)
class Port:
    """A mistake in a port: the edits of the port and of the reference that it is compared with, and what must be said.

    ``scheme`` is that of the model from scratch, or the name of a ``make`` of transformers.
    """

    name: str
    scheme: str
    says: tuple[str, ...]
    edits: tuple[tuple[str, str], ...] = ()
    common: tuple[tuple[str, str], ...] = ()
    make: Callable[[], tuple[Any, Any]] | None = None

    def models(self) -> tuple[Any, Any]:
        """Return the port and its reference."""
        return (
            self.make()
            if self.make
            else (scratch(self.scheme, self.common + self.edits), scratch(self.scheme, self.common))
        )

    def explain(self) -> str:
        """Return what the comparison says."""
        return against.compare(*self.models()).explanation

    def is_named(self, said: str) -> bool:
        """Whether all that has to be said was said."""
        return bool(said) and all(part in said for part in self.says)


def scratch(scheme: str, edits: tuple[tuple[str, str], ...]) -> Any:
    """Return the model from scratch with edits of its text, and weights in which position is audible."""
    source = SOURCE
    for old, new in edits:
        assert source.count(old) == 1, f"{old}: {source.count(old)} places"
        source = source.replace(old, new)
    adapter = build(scheme, source)[0]
    make_position_audible(adapter.module)
    adapter.audible = True
    return adapter


def library(name: str, change: Callable[[Any], None] | None = None) -> Any:
    """Return a small model of transformers, its configuration changed."""
    build_ = next(each for each in find(name) if each.task != "masked")
    config = tiny_config(build_)
    if change is not None:
        change(config)
    return build_model(config, build_.task)


def with_rope(**settings: Any) -> Callable[[Any], None]:
    """Return a change of the rotary settings of a configuration."""
    return lambda config: config.rope_parameters.update(settings)


def yarn_without_temperature() -> tuple[Any, Any]:
    port = library("llama+yarn:causal")
    port.model.rotary_emb.attention_scaling = 1.0
    return port, library("llama+yarn:causal")


def set_distance(config: Any) -> None:
    config.relative_attention_max_distance = 64


def set_full_base(config: Any) -> None:
    config.rope_parameters["full_attention"]["rope_theta"] = 10000.0


LATER, STEP_BACK = "torch.arange(past, past + new", "torch.arange(past - 8 * (past > 0), past - 8 * (past > 0) + new"
TWO_WAYS = "rotate = self.rotate if index else self.rotate_pairs; q, k = rotate(q, at), rotate(k, at)"
DEFINED = "    def rotate(self, x, at):"
HALVED, PAIRED = (
    f"angles.cos().{how}, angles.sin().{how}" for how in ("repeat(1, 1, 1, 2)", "repeat_interleave(2, -1)")
)
OF_16, OF_17 = ".triu(total - new - 15)", ".triu(total - new - 16)"
TOKENS, SCALED = "x = self.embed(ids)\n        if SCHEME", "x = self.embed(ids) * 8\n        if SCHEME"
TABLE = "self.pos_emb(positions)"
PORTS = (
    Port("base 250,000", "rope", ("base 250,000, not 10,000",), ((BASE, "250000.0 ** (-torch"),)),
    Port("pairs for halves", "rope", ("rotates neighbouring pairs, the reference halves",), ((ROTATE, PAIRS),)),
    Port("pairs for halves in layer 1", "rope", ("layer 1 rotates neighbouring pairs, the reference halves",),
         ((ROTATED, TWO_WAYS), (DEFINED, f"    def rotate_pairs(self, x, at):\n{PAIRS}\n{DEFINED}"))),
    Port("angles of pairs, rotation of halves", "rope", ("lays angles out in neighbouring pairs and rotates halves",), ((HALVED, PAIRED),)),
    Port("keys not rotated", "rope", ("does not rotate (keys)",), ((ROTATED, "q = self.rotate(q, at)"),)),
    Port("keys one position late", "rope", ("queries as if they stood 1 earlier than keys",), ((ROTATED, "q, k = self.rotate(q, at), self.rotate(k, at + 1)"),)),
    Port("half of the head rotated", "rope", ("rotates 8 of 16 channels, the reference 16",), ((ROTATE, HALF_HEAD),)),
    Port("√d left out", "rope", ("does not divide its logits by √16",), ((ROOT, ""),)),
    Port("the causal mask missing", "rope", ("lets every token see all later ones",), ((TRIL, ""),)),
    Port("window 17 for 16", "rope", ("a window of 17, not 16",), ((OF_16, OF_17),), ((TRIL, WINDOWED),)),
    Port("the factor forgotten", "rope", ("does not divide positions by 4",), ((f"{AT} / 4", AT),), ((AT, f"{AT} / 4"),)),
    Port("values rotated too", "rope", ("values",), ((ROTATED, f"{ROTATED}; v = self.rotate(v, at)"),)),
    Port("base 500,000 and window 17", "rope", ("base 500,000, not 10,000", "a window of 17, not 16"),
         ((BASE, "500000.0 ** (-torch"), (OF_16, OF_17)), ((TRIL, WINDOWED),)),
    Port("pairs for halves and √d left out", "rope", ("neighbouring pairs, the reference halves", "does not divide its logits by √16"),
         ((ROTATE, PAIRS), (ROOT, ""))),
    Port("slopes doubled", "alibi", ("ALiBi's slopes doubled",), ((SLOPES, f"2 * {SLOPES}"),)),
    Port("slopes of 8 heads", "alibi", ("ALiBi's slopes of 8 heads, not 4",), ((SLOPES, SLOPES.replace("/ HEADS", "/ 8")),)),
    Port("the table read 2 too late", "learned", ("gives position p the reference's vector of p + 2",), ((TABLE, "self.pos_emb((positions + 2).clamp(max=LONGEST - 1))"),)),
    Port("tokens not multiplied by √d", "learned", ("does not multiply its tokens by √64",), ((SCALED, TOKENS),), ((TOKENS, SCALED),)),
    Port("the decode step 8 too early", "learned", ("each decode step stands 8 places too early",), ((LATER, STEP_BACK),)),
    Port("positions counted from the pads", "learned", ("behind 5 pads the text stands 5 places too late",),
         (("(mask.long().cumsum(-1) - 1).clamp(min=0)", "torch.ones_like(mask.long()).cumsum(-1).sub(1)"),)),
    Port("the sign of T5's distances", "t5", ("the encoder takes the distances with the other sign",),
         (("keys_at[:, None, :] - at[:, :, None]", "at[:, :, None] - keys_at[:, None, :]"),)),
    Port("YaRN without its temperature", "llama", ("lacks the attention factor 1.139 (YaRN's temperature)",), make=yarn_without_temperature),
    Port("T5's largest distance", "t5 of transformers", ("a maximum distance of 64, not 32",), make=lambda: (library("t5", set_distance), library("t5"))),
    Port("the base of one kind of layer", "gemma3_text", ("in its full_attention layers", "base 10,000, not 1,000,000"),
         make=lambda: (library("gemma3_text", set_full_base), library("gemma3_text"))),
    Port("the factor of YaRN 4 for 8", "llama", ("factor",), make=lambda: (library("llama+yarn:causal"), library("llama+yarn:causal", with_rope(factor=8.0)))),
)  # fmt: skip

_SCORES, _SOFTMAX = "scores = q @ k.transpose(-1, -2) / math.sqrt(HEAD)", "mixed = scores.softmax(-1) @ v"
_FUSED = (
    "mixed = nn.functional.scaled_dot_product_attention(q, k, v, scores - q @ k.transpose(-1, -2) / math.sqrt(HEAD))"
)
_KEY_ALONE = ("(at[:, None, :, None] - keys_at[:, None, None, :]).float()", "-keys_at[:, None, None, :].float()")
CORRECT = (
    *(Port(f"as it is: {scheme}", scheme, ()) for scheme in ("rope", "learned", "alibi", "t5")),
    Port("all angles 3 positions on", "rope", (), ((ROTATED, "q, k = self.rotate(q, at + 3), self.rotate(k, at + 3)"),)),
    Port("the scale before the product", "rope", (), ((_SCORES, "scores = (q / math.sqrt(HEAD)) @ k.transpose(-1, -2)"),)),
    Port("the scale shared by both", "alibi", (), ((_SCORES, "scores = (q / HEAD**0.25) @ (k / HEAD**0.25).transpose(-1, -2)"),)),
    Port("PyTorch's fused function", "t5", (), ((_SOFTMAX, _FUSED),)),
    Port("a bias by the key alone", "alibi", (), (_KEY_ALONE,)),
    Port("masked by -1e9", "alibi", (), (("torch.finfo(scores.dtype).min", "-1e9"),)),
    Port("a mask of a window as long as the text", "learned", (), ((TRIL, TRIL + ".triu(total - new - 200)"),)),
    Port("the softmax in float64", "rope", (), (("scores.softmax(-1)", "scores.double().softmax(-1).to(v.dtype)"),)),
)  # fmt: skip
"""Ports that compute the same in another way: nothing differs, and nothing may be said."""
_LOUDER = ("return self.head(self.norm(x))", "return 1.5 * self.head(self.norm(x))")
ELSEWHERE = (
    Port("louder logits", "rope", (), (_LOUDER,)),
    Port("another activation", "alibi", (), (("nn.GELU()", "nn.ReLU()"),)),
    Port("a norm left out", "learned", (), (("self.norms[1](x)", "x"),)),
    Port("values twice as large", "rope", (), ((_SOFTMAX, "mixed = scores.softmax(-1) @ (2 * v)"),)),
    Port("another base and louder logits", "rope", (), ((BASE, "250000.0 ** (-torch"), _LOUDER)),
    Port("heads joined in another order", "t5", (), (("mixed.transpose(1, 2).flatten(2)", "mixed.flip(1).transpose(1, 2).flatten(2)"),)),
)  # fmt: skip
"""Ports that are wrong in something else than positions: whatever is said would be wrong."""

ROOT_FOLDER = Path(__file__).resolve().parents[3]
PAGE = ROOT_FOLDER / "docs/conformance/port-mistakes.md"
NUMBERS = ROOT_FOLDER / "benchmarks/results/port_mistakes.json"
COMMAND = "python -m tests.checking.scratch.ports"
TEXT = """# Mistakes of ports, explained

A port that is wrong in the same way everywhere keeps every law, so only a comparison with its reference sees it
(`clockhands check PORT --against REFERENCE`). Of {count} mistakes planted one at a time, or two at once, in small
models {named} are named as they should be; where nothing fits nothing is said. They were planted
by those who know the method, so this is a bound from above. Written by `{command}`.
{measured}

| planted | printed |
|---|---|
{rows}

**Nothing to say.** Of {correct} ports that compute the same in another way {alarms} differ{s}. Of {elsewhere} that are
wrong in something else than positions (louder logits, another activation, a norm left out) {guesses} got an
explanation: what was fitted is printed only if the logits agree once it is undone.
"""


def main() -> None:
    """Plant every mistake, and write the page and its numbers."""
    printed = {port.name: port.explain() for port in PORTS}
    named = [port.name for port in PORTS if port.is_named(printed[port.name])]
    alarms = [port.name for port in CORRECT if not against.compare(*port.models()).same]
    guesses = [port.name for port in ELSEWHERE if port.explain()]
    rows = [
        f"| {name} | {said or 'nothing'}{'' if name in named else ' (not named)'} |" for name, said in printed.items()
    ]
    counts = {"count": len(PORTS), "named": len(named), "correct": len(CORRECT), "alarms": len(alarms)}
    counts |= {"elsewhere": len(ELSEWHERE), "guesses": len(guesses)}
    text = TEXT.format(
        measured=tell_measured(), rows="\n".join(rows), command=COMMAND, s="s" if len(alarms) == 1 else "", **counts
    )
    PAGE.write_text(text, encoding="utf8")
    numbers = {"command": COMMAND, "results": {**counts, "printed": printed}}
    NUMBERS.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n", encoding="utf8")
    print(text)


if __name__ == "__main__":
    main()
