"""Oracles of the schemes that turn queries and keys."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from tests.schemes.oracles.registry import Case, Expected, oracle, weights


def turning(
    case: Case, turned: int, angle: Callable[[int, Any, int], float], amplitude: float = 1.0, sharper: float = 1.0
) -> Expected:
    """Su et al. 2021, equation 34, as complex products: Re Σ_c q_c e^{iφ(h, m, c)} (k_c e^{iφ(h, n, c)})*."""
    width, half = case.q_HSK.shape[-1], case.scheme.layout == "half"

    def complexes(x: list[float], h: int, p: Any) -> list[complex]:
        pairs = [(c, c + turned // 2) if half else (2 * c, 2 * c + 1) for c in range(turned // 2)]
        return [complex(x[a], x[b]) * amplitude * cmath.exp(1j * angle(h, p, c)) for c, (a, b) in enumerate(pairs)]

    logits = torch.zeros(case.q_HSK.shape[0], len(case.qpos_S), len(case.kpos_T), dtype=torch.float64)
    for h in range(logits.shape[0]):
        keys = [complexes(case.k_HTK[h, j].tolist(), h, n) for j, n in enumerate(case.kpos_T.tolist())]
        for i, m in enumerate(case.qpos_S.tolist()):
            query = complexes(case.q_HSK[h, i].tolist(), h, m)
            for j, key in enumerate(keys):
                total = sum((a * b.conjugate()).real for a, b in zip(query, key, strict=True))
                if turned < width:
                    total += float(case.q_HSK[h, i, turned:] @ case.k_HTK[h, j, turned:])
                logits[h, i, j] = total / math.sqrt(width) * sharper
    return Expected(logits_HST=logits)


def turned_values(
    case: Case, logits_HST: Tensor, turned: int, angle: Callable[[int, Any, int], float], layout: str
) -> Tensor:
    """DeepSeek-V4's model code as one sum, [H, S, K]: Σ_j w_ij R(φ(n) - φ(m)) v_j over the channels that rotate."""
    shares, half = weights(logits_HST, case.causal).tolist(), layout == "half"
    pairs = [(c, c + turned // 2) if half else (2 * c, 2 * c + 1) for c in range(turned // 2)]
    asked, found, values = case.qpos_S.tolist(), case.kpos_T.tolist(), case.v_HTK.tolist()
    out = torch.zeros(len(shares), len(case.qpos_S), case.v_HTK.shape[-1], dtype=torch.float64)
    for h, i, j in product(*map(range, logits_HST.shape)):
        value, moved = values[h][j], list(values[h][j])
        for c, (a, b) in enumerate(pairs):
            turn = angle(h, found[j], c) - angle(h, asked[i], c)
            arrived = complex(value[a], value[b]) * cmath.exp(1j * turn)
            moved[a], moved[b] = arrived.real, arrived.imag
        out[h, i] += shares[h][i][j] * torch.tensor(moved, dtype=torch.float64)
    return out


def yarn(o: dict[str, Any], theta: float, c: int, turned: int, base: float) -> float:
    """Peng et al. 2023, equations 17 to 20 (``ramp`` rotations), or the authors' code (channel)."""
    length, slow, fast = o.get("original_length", 2048), o.get("beta_slow", 1.0), o.get("beta_fast", 32.0)
    if o.get("ramp", "channel") == "rotations":
        rotations = length * theta / (2 * math.pi)
        gamma = min(max((rotations - slow) / (fast - slow), 0), 1)
    else:
        low, high = (turned * math.log(length / (2 * math.pi * b)) / (2 * math.log(base)) for b in (fast, slow))
        if o.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, turned - 1)
        gamma = 1 - min(max((c - low) / ((high - low) or 0.001), 0), 1)
    return (1 - gamma) * theta / o["factor"] + gamma * theta


def bent(o: dict[str, Any], c: int, turned: int, longest: int, p: int) -> float:
    """θ_c under each spectrum; ``longest``: the length of the row."""
    base, spectrum, factor = o.get("base", 10_000.0), o.get("spectrum", "default"), o.get("factor", 1.0)
    theta, length = base ** (-2 * c / turned), o.get("original_length", 2048)
    if spectrum == "linear":
        return theta / factor
    if spectrum == "ntk":
        return (base * factor ** (turned / (turned - 2))) ** (-2 * c / turned)
    if spectrum == "dynamic" and longest > length:
        return (base * (factor * longest / length - (factor - 1)) ** (turned / (turned - 2))) ** (-2 * c / turned)
    if spectrum == "yarn":
        return yarn(o, theta, c, turned, base)
    if spectrum == "longrope" and p >= o.get("unscaled_first", 0):
        return theta / o["long_factor" if longest > length else "short_factor"][c]
    if spectrum == "llama3":
        wave, low, high = 2 * math.pi / theta, o.get("low_frequency_factor", 1.0), o.get("high_frequency_factor", 4.0)
        if wave > length / low:
            return theta / factor
        if wave < length / high:
            return theta
        smooth = (length / wave - low) / (high - low)
        return (1 - smooth) * theta / factor + smooth * theta
    if spectrum == "hope":  # with base 10,000 and eight channels hands come round in 6, 63, 628 and 6,283 tokens
        return theta if c < 2 else 0.0
    if spectrum == "proportional":
        return theta if c < int(o.get("share", 0.25) * turned // 2) else 0.0
    return theta


@oracle(
    "rope",
    {"layout": "interleaved"},
    {"fraction": 0.5, "base": 500.0},
    {"learned": True},
    {"values": True, "layout": "interleaved", "fraction": 0.5, "base": 50.0},
    {"values": True, "learned": True},
    {"values": True, "spectrum": "yarn", "factor": 8.0, "original_length": 40, "beta_fast": 4.0},
    {"values": True, "spectrum": "dynamic", "factor": 3.0, "original_length": 5, "base": 50.0},
    {"spectrum": "linear", "factor": 4.0},
    {"spectrum": "ntk", "factor": 4.0, "layout": "interleaved"},
    {"spectrum": "dynamic", "factor": 3.0, "original_length": 5},
    {"spectrum": "yarn", "factor": 8.0, "original_length": 40, "beta_fast": 4.0},
    {"spectrum": "yarn", "factor": 8.0, "original_length": 40, "ramp": "rotations", "beta_fast": 9.0},
    {"spectrum": "yarn", "factor": 2.0, "original_length": 300, "truncate": False, "attention_factor": 1.3},
    {
        "spectrum": "yarn", "factor": 40.0, "original_length": 40, "mscale": 1.0, "mscale_all_dim": 0.707,
        "fraction": 0.5,
    },
    {
        "spectrum": "longrope", "factor": 4.0, "original_length": 5, "short_factor": (1.0, 1.1, 1.2, 1.4),
        "long_factor": (1.5, 2.0, 3.0, 9.0), "unscaled_first": 2,
    },
    {"spectrum": "llama3", "factor": 8.0, "original_length": 64, "base": 100.0},
    {"spectrum": "llama3", "factor": 8.0, "original_length": 64, "base": 100.0, "high_frequency_factor": 1.0},
    {"spectrum": "proportional", "share": 0.5},
    {"spectrum": "hope", "original_length": 64},
)  # fmt: skip
def rope(case: Case) -> Expected:
    o = case.options
    turned = int(case.q_HSK.shape[-1] * o.get("fraction", 1.0))
    learned = case.scheme.alpha_F.double().exp().tolist() if o.get("learned") else [1.0] * turned
    longest = max(case.qpos_S.tolist() + case.kpos_T.tolist()) + 1
    amplitude = o.get("attention_factor", 1.0)
    if o.get("spectrum") == "yarn" and "attention_factor" not in o:
        amplitude = 0.1 * math.log(o["factor"]) + 1
    sharper = 1.0
    if "mscale" in o:  # DeepSeek-V2's yarn_get_mscale
        over, under = (0.1 * o[name] * math.log(o["factor"]) + 1 for name in ("mscale", "mscale_all_dim"))
        amplitude, sharper = over / under, under**2
    if o.get("spectrum") == "longrope":
        amplitude = math.sqrt(1 + math.log(o["factor"]) / math.log(o["original_length"]))

    @cache
    def angle(h: int, p: Any, c: int) -> float:
        return float(p * bent(o, c, turned, longest, p) * learned[c])

    expected = turning(case, turned, angle, amplitude, sharper)
    if o.get("values"):
        expected.out_HSK = turned_values(case, expected.logits_HST, turned, angle, case.scheme.layout)
    return expected


@oracle("grape", {"per_head": True, "base": 40.0}, {"form": "rank-2"})
def grape(case: Case) -> Expected:
    """Zhang et al. 2025, section 3: q_iᵀ exp((i - j)·L)ᵀ k_j with the generator as a matrix."""
    width, heads = case.q_HSK.shape[-1], case.q_HSK.shape[0]
    logits = torch.zeros(heads, len(case.qpos_S), len(case.kpos_T), dtype=torch.float64)
    for h in range(heads):
        generator = torch.zeros(width, width, dtype=torch.float64)
        if case.options.get("form") == "rank-2":
            a, b = case.scheme.span_HK2[h].detach().double().unbind(-1)
            generator = torch.outer(a, b) - torch.outer(b, a)
        else:
            speeds = case.scheme.speed_HF.detach().double().exp()
            for c, speed in enumerate(speeds[h % len(speeds)].tolist()):
                generator[c + width // 2, c], generator[c, c + width // 2] = speed, -speed
        turns = {r: torch.linalg.matrix_exp(r * generator) for r in {r for row in case.offsets for r in row}}
        for i, j in product(range(logits.shape[1]), range(logits.shape[2])):
            turned = turns[case.offsets[i][j]] @ case.q_HSK[h, i]
            logits[h, i, j] = turned @ case.k_HTK[h, j] / math.sqrt(width)
    return Expected(logits_HST=logits)


@oracle(
    "axial", {"axes": 2, "layout": "half", "base": 30.0, "unit": 0.7}, {"grid": "dealt", "layout": "half"},
    {"axes": 3}, {"axes": 3, "shares": (2, 4, 2), "bases": (10.0, 50.0, 1000.0)},
)  # fmt: skip
def axial(case: Case) -> Expected:
    """Heo et al. 2024, section 3.1, written out for the four pairs of these tests: (axis, exponent, base) of each."""
    o, turned = case.options, case.q_HSK.shape[-1]
    base = o.get("base", 100.0)
    if o.get("grid") == "dealt":
        pairs = [(0, 0, base), (0, 1 / 2, base), (1, 1 / 4, base), (1, 3 / 4, base)]
    elif "shares" in o:
        pairs = [(0, 0, 10.0), (1, 0, 50.0), (1, 1 / 2, 50.0), (2, 0, 1000.0)]
    elif o.get("axes") == 3:
        pairs = [(0, 0, base), (0, 1 / 2, base), (1, 0, base), (2, 0, base)]
    else:
        pairs = [(0, 0, base), (0, 1 / 2, base), (1, 0, base), (1, 1 / 2, base)]
    unit = o.get("unit", 1.0)
    return turning(case, turned, lambda h, p, c: p[pairs[c][0]] * unit * pairs[c][2] ** -pairs[c][1])


@oracle("mixed", {"layout": "half", "base": 100.0})
def mixed(case: Case) -> Expected:
    """Heo et al. 2024, equation 12."""
    omega = case.scheme.omega_HAF.tolist()
    return turning(case, case.q_HSK.shape[-1], lambda h, p, c: p[0] * omega[h][0][c] + p[1] * omega[h][1][c])


@oracle(
    "mrope",
    {"order": "interleaved", "sections": (2, 1, 1), "layout": "interleaved"},
    {"sections": (1, 2, 1)},
    {"order": "interleaved"},
)
def mrope(case: Case) -> Expected:
    """Qwen2-VL (blocks) and Qwen3-VL (t, h, w, t, ...), written out for the four pairs of these tests."""
    base, turned = case.options.get("base", 10_000.0), case.q_HSK.shape[-1]
    axis = [0, 1, 1, 2] if case.options.get("sections") == (1, 2, 1) else [0, 0, 1, 2]
    axis = [0, 1, 2, 0] if case.options.get("order") == "interleaved" else axis
    return turning(case, turned, lambda h, p, c: p[axis[c]] * base ** (-2 * c / turned))


@oracle("xpos", {"layout": "half", "scale_base": 16.0, "gamma": 0.7, "base": 50.0})
def xpos(case: Case) -> Expected:
    """Sun et al. 2023, equation 12: the rotated product of each pair times ζ_c^{(i - j)/s}."""
    o, width = case.options, case.q_HSK.shape[-1]
    half, scale, gamma = o.get("layout") == "half", o.get("scale_base", 512.0), o.get("gamma", 0.4)
    logits = torch.zeros(case.q_HSK.shape[0], len(case.qpos_S), len(case.kpos_T), dtype=torch.float64)
    for h, i, j in product(*map(range, logits.shape)):
        r, q, k = float(case.offsets[i][j]), case.q_HSK[h, i].tolist(), case.k_HTK[h, j].tolist()
        if r < 0:
            continue
        total = 0.0
        for c in range(width // 2):
            a, b = (c, c + width // 2) if half else (2 * c, 2 * c + 1)
            turned = (
                complex(q[a], q[b]) * complex(k[a], -k[b]) * cmath.exp(1j * r * o.get("base", 1e4) ** (-2 * c / width))
            )
            total += turned.real * ((2 * c / width + gamma) / (1 + gamma)) ** (r / scale)
        logits[h, i, j] = total
    return Expected(logits_HST=logits / math.sqrt(width))


@oracle("pope", {"start": "uniform", "base": 20.0})
def pope(case: Case) -> Expected:
    """Gopalakrishnan et al. 2025, equation 6, with the exponent -(c - 1)/d of the authors' code."""
    width, base = case.q_HSK.shape[-1], case.options.get("base", 10_000.0)
    delta = case.scheme.delta_HK.clamp(-2 * math.pi, 0).tolist()
    logits = torch.zeros(case.q_HSK.shape[0], len(case.qpos_S), len(case.kpos_T), dtype=torch.float64)
    q, k = case.q_HSK.tolist(), case.k_HTK.tolist()
    for h, i, j in product(*map(range, logits.shape)):
        r, total = -float(case.offsets[i][j]), 0.0
        for c in range(width):
            lengths = math.log1p(math.exp(q[h][i][c])) * math.log1p(math.exp(k[h][j][c]))
            total += lengths * math.cos(r * base ** (-c / width) + delta[h][c])
        logits[h, i, j] = total
    return Expected(logits_HST=logits / math.sqrt(width))


@oracle(
    "fope",
    {"learned": True, "original_length": 40, "layout": "interleaved", "normalise": False},
    {"rest": "code", "base": 60.0, "normalise": False},
)
def fope(case: Case) -> Expected:
    """Hua et al. 2025, section 4: sums of the waves that come round within L, for the first d/4 pairs."""
    o, width = case.options, case.q_HSK.shape[-1]
    thetas = [o.get("base", 1e4) ** (-2 * c / width) for c in range(width // 2)]
    thetas = [theta for theta in thetas if theta >= 2 * math.pi / o["original_length"]]
    rest, half = (1.0, 1.0 if o.get("rest") == "code" else 0.0), o.get("layout", "half") == "half"
    cosines, sines = case.scheme.cos_HFG.tolist(), case.scheme.sin_HFG.tolist()

    def wave(function: Callable[[float], float], by: list[list[float]], p: float, c: int) -> float:
        total = sum(by[f][c] * function(p * theta) for f, theta in enumerate(thetas))
        return total / sum(row[c] for row in by) if o.get("normalise", True) else total

    def turned(x: list[float], h: int, p: float) -> list[float]:
        out = list(x)
        for c in range(width // 2):
            a, b = (c, c + width // 2) if half else (2 * c, 2 * c + 1)
            cos, sin = rest
            if c < min(len(thetas), width // 4):
                cos, sin = wave(math.cos, cosines[h], p, c), wave(math.sin, sines[h], p, c)
            out[a], out[b] = x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin
        return out

    rows = [
        torch.tensor(
            [[turned(x, h, p) for x, p in zip(head.tolist(), pos.tolist(), strict=True)] for h, head in heads],
            dtype=torch.float64,
        )
        for heads, pos in ((list(enumerate(case.q_HSK)), case.qpos_S), (list(enumerate(case.k_HTK)), case.kpos_T))
    ]
    return Expected(logits_HST=rows[0] @ rows[1].transpose(-1, -2) / math.sqrt(width))


@oracle(
    "temperature",
    {"form": "floor", "length": 3, "coefficient": 0.5},
    {"form": "log", "length": 4},
    {"form": "constant", "factor": 4.0, "coefficient": 0.412},
    {"form": "floor", "length": 3, "coefficient": 0.5, "axis": 0},
    {"form": "log", "length": 2, "coefficient": 0.5, "axis": 1},
)
def temperature(case: Case) -> Expected:
    """Llama 4's model code (floor); DroPE, section 4 (constant)."""
    o, logits = case.options, case.scores()
    c, length = o.get("coefficient", 0.1), o.get("length", 8192)

    def rise(place: torch.Tensor) -> float:
        if o.get("form") == "constant":
            return float(o["factor"])
        (p,) = case.coordinates(place)
        return 1 + (p / length if o.get("form") == "log" else (p + 1) // length)

    for i, place in enumerate(case.qpos_S):
        logits[:, i] *= 1 + c * math.log(rise(place))
    return Expected(logits_HST=logits)


def at_distances(case: Case, distance: Callable[[int, int], float]) -> Expected:
    """RoPE (half layout) whose pairs of tokens meet at distances that are told."""
    base, width = case.options.get("base", 10_000.0), case.q_HSK.shape[-1]
    logits = torch.zeros(case.q_HSK.shape[0], len(case.qpos_S), len(case.kpos_T), dtype=torch.float64)
    places = list(product(enumerate(case.qpos_S.tolist()), enumerate(case.kpos_T.tolist())))
    for h, ((i, m), (j, n)) in product(range(logits.shape[0]), places):
        q, k, total = case.q_HSK[h, i].tolist(), case.k_HTK[h, j].tolist(), 0.0
        for c in range(width // 2):
            turn = cmath.exp(1j * distance(m, n) * base ** (-2 * c / width))
            met = complex(q[c], q[c + width // 2]) * complex(k[c], -k[c + width // 2]) * turn
            total += met.real / math.sqrt(width)
        logits[h, i, j] = total
    return Expected(logits_HST=logits)


@oracle("rerope", {"window": 3}, {"window": 2, "factor": 3.0}, trained=8)
def rerope(case: Case) -> Expected:
    """Su 2023: min(r, w), or w + (r - w)/k beyond the window; w is half of the trained length (kexue.fm/9708)."""
    window, leak = case.options.get("window", 4), case.options.get("factor", math.inf)
    return at_distances(case, lambda m, n: m - n if m - n < window else window + (m - n - window) / leak)


@oracle("self-extend", {"window": 3, "group": 2}, trained=8)
def self_extend(case: Case) -> Expected:
    """Jin et al. 2024, section 3: far positions are divided by the group's size and rounded down.

    W is a quarter of the trained length, as in the authors' examples.
    """
    window, group = case.options.get("window", 2), case.options.get("group", 8)
    return at_distances(
        case, lambda m, n: m - n if m - n < window else m // group - n // group + window - window // group
    )


@oracle("dual-chunk", {"original_length": 5, "chunk": 3}, trained=8)
def dual_chunk(case: Case) -> Expected:
    """An et al. 2024, section 3: intra-chunk, successive-chunk and inter-chunk attention."""
    trained, chunk = case.options["original_length"], case.options.get("chunk", 6)

    def distance(m: int, n: int) -> float:
        chunks = m // chunk - n // chunk
        if chunks == 0:
            return m % chunk - n % chunk
        return (min(m % chunk + chunk, trained - 1) if chunks == 1 else trained - 1) - n % chunk

    return at_distances(case, distance)


@oracle("ssmax", {"bias": True}, {"count": "visible"}, {"axis": 0}, {"axis": 1, "bias": True})
def ssmax(case: Case) -> Expected:
    """Nakanishi 2025: (s·ln n)·z for each head; Mistral Large 4 adds b."""
    logits, scheme = case.scores(), case.scheme
    for h, i in product(range(logits.shape[0]), range(logits.shape[1])):
        last = i + 1 + logits.shape[2] - logits.shape[1] if case.causal else logits.shape[2]
        seen = logits[h, i] > -math.inf  # a window beside it has masked some
        by_mask = case.options.get("count") == "visible"
        count = int(seen[:last].sum()) if by_mask else case.coordinates(case.qpos_S[i])[0] + 1
        factor = float(scheme.slope_H[h].detach()) * math.log(max(count, 1))
        logits[h, i, seen] *= factor + (float(scheme.bias_H[h].detach()) if case.options.get("bias") else 0.0)
    return Expected(logits_HST=logits)


@oracle("liere", {"block": 4, "form": "partition"}, {"block": 4, "form": "dependent"})
def liere(case: Case) -> Expected:
    """Ostmeier et al. 2025; Yu et al. 2025: exp of a skew matrix by the eigenvectors of the Hermitian i·A."""
    scheme, heads = case.scheme, case.q_HSK.shape[0]
    half = scheme.generator_HANCC.detach().double()
    skew = half - half.transpose(-1, -2)

    @cache
    def make_turn(h: int, n: int, pos: tuple[float, ...]) -> torch.Tensor:
        if scheme.form == "free":
            generator = sum(p * skew[h, a, n] for a, p in enumerate(pos))
        elif scheme.form == "partition":
            generator = pos[n % 2] * skew[h, 0, n]
        else:
            generator = sum(p * float(scheme.rate_HAN[h, a, n]) for a, p in enumerate(pos)) * skew[h, 0, n]
        values, vectors = torch.linalg.eigh(1j * generator)
        return vectors @ torch.diag(torch.exp(-1j * values)) @ vectors.conj().T

    def rotated(x: torch.Tensor, h: int, pos: list[float]) -> torch.Tensor:
        turns = [make_turn(h, n, tuple(pos)) for n in range(len(x) // scheme.block)]
        parts = zip(turns, x.split(scheme.block), strict=True)
        return torch.cat([(turn @ part.to(turn.dtype)).real for turn, part in parts])

    q, k = (
        torch.stack(
            [torch.stack([rotated(x, h, p) for x, p in zip(rows[h], pos.tolist(), strict=True)]) for h in range(heads)]
        )
        for rows, pos in ((case.q_HSK, case.qpos_S), (case.k_HTK, case.kpos_T))
    )
    return Expected(logits_HST=q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]))
