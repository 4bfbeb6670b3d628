"""Oracles of the schemes in which position meets content."""

from __future__ import annotations

import math
from functools import cache

import torch

from tests.schemes.oracles.bias import t5_bucket
from tests.schemes.oracles.registry import Case, Expected, oracle, weights


@oracle("cope", {"max_position": 3})
def cope(case: Case) -> Expected:
    """Golovneva et al. 2024, equations 3 to 6, with the gates of the masked logits."""
    table = case.scheme.embedding_PK.detach().double()
    scores = case.scores().tolist()

    def term(h: int, i: int, j: int) -> float:
        p = sum(1 / (1 + math.exp(-scores[h][i][t])) for t in range(j, i + 1))
        p = min(p, len(table) - 1)
        low, high = math.floor(p), math.ceil(p)
        at_low, at_high = (float(case.q_HSK[h, i] @ table[n]) for n in (low, high))
        return at_low if low == high else (1 - (p - low)) * at_low + (p - low) * at_high

    return case.add(term)


@oracle("shaw", {"clip": 2}, {"clip": 3, "values": False}, {"clip": 0})
def shaw(case: Case) -> Expected:
    """Shaw et al. 2018, equations 3 to 5: keys and values gain a vector for clip(j - i, -k, k)."""
    clip = case.options.get("clip", 16)
    keys = case.scheme.keys_RK.detach().double()

    def row(i: int, j: int) -> int:
        return max(-clip, min(clip, -int(case.offsets[i][j]))) + clip

    expected = case.add(lambda h, i, j: float(case.q_HSK[h, i] @ keys[row(i, j)]) / math.sqrt(keys.shape[1]))
    if not case.options.get("values", True):
        return expected
    table = case.scheme.values_RK.detach().double()
    weight = weights(expected.logits_HST, case.causal)
    out = torch.zeros_like(case.q_HSK)
    for h in range(out.shape[0]):
        for i in range(out.shape[1]):
            for j in range(weight.shape[2]):
                out[h, i] += weight[h, i, j] * (case.v_HTK[h, j] + table[row(i, j)])
    return Expected(logits_HST=expected.logits_HST, out_HSK=out)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z > -700 else 0.0


def softplus(z: float) -> float:
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


def linear(layer: torch.nn.Linear | torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """W x + b in float64."""
    if isinstance(layer, torch.Tensor):
        return layer.detach().double() @ x
    out = layer.weight.detach().double() @ x
    return out if layer.bias is None else out + layer.bias.detach().double()


def rotated(vector: torch.Tensor, angles: list[float], half: bool = True) -> torch.Tensor:
    """Pairs of channels as complex numbers times e^{i·angle}."""
    out = vector.clone()
    for c, angle in enumerate(angles):
        a, b = (c, c + len(angles)) if half else (2 * c, 2 * c + 1)
        turned = complex(vector[a], vector[b]) * complex(math.cos(angle), math.sin(angle))
        out[a], out[b] = turned.real, turned.imag
    return out


def turned_logits(case: Case, angles: list[list[list[float]]]) -> Expected:
    """Queries and keys of each head and token turned by their angles, then their scores."""
    half = case.options.get("layout", "half") == "half"
    q, k = case.q_HSK.clone(), case.k_HTK.clone()
    for h in range(q.shape[0]):
        for t in range(q.shape[1]):
            q[h, t] = rotated(case.q_HSK[h, t], angles[h][t], half)
            k[h, t] = rotated(case.k_HTK[h, t], angles[h][t], half)
    return Expected(logits_HST=torch.einsum("hsk,htk->hst", q, k) / math.sqrt(q.shape[-1]))


@oracle("forgetting", {"gate": "cable"}, {"start": 0.0})
def forgetting(case: Case) -> Expected:
    """Lin et al. 2025, equation 5: the sum of ln f_l over what lies between. Cable: b_i - b_j, b = Σ -softplus."""
    scheme = case.scheme

    @cache
    def log_gate(h: int, t: int) -> float:
        z = float(scheme.gate_HD[h].detach().double() @ case.x_TD[t])
        if case.options.get("gate") == "cable":
            return -softplus(z)
        return math.log(sigmoid(z + float(scheme.start_H[h])))

    return case.add(lambda h, i, j: sum(log_gate(h, t) for t in range(j + 1, i + 1)))


@oracle("carope", {"first_power": 0, "layout": "interleaved"})
def carope(case: Case) -> Expected:
    """Veisi et al. 2025, section 3."""
    first, pairs = case.options.get("first_power", 1), case.q_HSK.shape[-1] // 2

    @cache
    def base(h: int, t: int) -> float:
        return 1 / (softplus(float(case.scheme.turn_HD[h].detach().double() @ case.x_TD[t])) + 1)

    angles = [
        [
            [sum(base(h, u) ** (c + first) for u in range(t + 1)) for c in range(pairs)]
            for t in range(case.x_TD.shape[0])
        ]
        for h in range(case.q_HSK.shape[0])
    ]
    return turned_logits(case, angles)


@oracle("repo", {"hidden": 5, "base": 50.0, "layout": "interleaved"})
def repo(case: Case) -> Expected:
    """arXiv 2512.14391: z = W_z(silu(W_g x) * W_c x), then RoPE at position z."""
    scheme, width, base = case.scheme, case.q_HSK.shape[-1], case.options.get("base", 10_000.0)
    places = []
    for x in case.x_TD:
        gate = torch.tensor([z * sigmoid(z) for z in linear(scheme.gate, x).tolist()], dtype=torch.float64)
        places.append(linear(scheme.place, gate * linear(scheme.content, x)).tolist())
    angles = [
        [[place[h] * base ** (-2 * c / width) for c in range(width // 2)] for place in places]
        for h in range(case.q_HSK.shape[0])
    ]
    return turned_logits(case, angles)


def tapped(numbers: list[torch.Tensor], taps: torch.Tensor) -> list[torch.Tensor]:
    """A causal convolution: the last tap weighs the token itself."""
    width = taps.shape[-1]
    return [
        sum(numbers[t - back] * taps[:, width - 1 - back] for back in range(min(width, t + 1)))
        for t in range(len(numbers))
    ]


@oracle("selective-rope", {"rank": 3, "taps": 2, "base": 20.0, "gated": True})
def selective_rope(case: Case) -> Expected:
    """Movahedi et al. 2025, section 4, and the authors' module."""
    scheme, heads, width = case.scheme, case.q_HSK.shape[0], case.q_HSK.shape[-1]
    x_hat = [torch.cat([part / part.norm() for part in x.chunk(heads)]) for x in case.x_TD]
    asked = [linear(scheme.up, linear(scheme.down, x)).view(heads, width // 2) for x in x_hat]
    angles = []
    for h in range(heads):
        smooth = tapped([numbers[h] for numbers in asked], scheme.taps_HFW[h].detach().double())
        total, rows = torch.zeros(width // 2, dtype=torch.float64), []
        for t, numbers in enumerate(smooth):
            gate = sigmoid(float(linear(scheme.gate, x_hat[t])[h])) if case.options.get("gated") else 1.0
            total = total + numbers * gate
            base = case.options.get("base", 500_000.0)
            rows.append([float(total[c]) * base ** (-2 * c / width) for c in range(width // 2)])
        angles.append(rows)
    return turned_logits(case, angles)


@oracle("stick-breaking", {"attend_current": True})
def stick_breaking(case: Case) -> Expected:
    """Tan et al. 2025, equations 1 and 2: break a share off what the nearer keys have left."""
    scores, out = case.scores(), torch.zeros_like(case.q_HSK)
    for h in range(out.shape[0]):
        for i in range(out.shape[1]):
            left = 1.0
            for j in range(i if case.options.get("attend_current") else i - 1, -1, -1):
                share = sigmoid(float(scores[h, i, j]))
                out[h, i] += left * share * case.v_HTK[h, j]
                left *= 1 - share
    return Expected(logits_HST=scores, out_HSK=out)


@oracle("dape", {"base": "alibi", "hidden": 7})
def dape(case: Case) -> Expected:
    """Zheng et al. 2024, equation 3: A + B + f([A; B]) at each pair, f over the heads with LeakyReLU(0.01)."""
    scheme, scores = case.scheme, case.scores()
    heads = scores.shape[0]
    first, second = scheme.mlp.layers
    logits = scores.clone()
    for i in range(scores.shape[1]):
        for j in range(scores.shape[2]):
            if case.causal and j > i:
                continue
            r = abs(float(case.offsets[i][j]))
            if case.options.get("base") == "alibi":
                bias = [-float(m) * r for m in scheme.base.compute_slopes()[0]]
            else:
                size, shape = scheme.base.size_H.clamp(min=0.01), scheme.base.shape_H.clamp(min=0.01)
                bias = [-float(size[h]) * math.log(1 + float(shape[h]) * r) for h in range(heads)]
            both = torch.cat([scores[:, i, j], torch.tensor(bias, dtype=torch.float64)])
            hidden = torch.tensor([z if z > 0 else 0.01 * z for z in linear(first, both)], dtype=torch.float64)
            logits[:, i, j] += torch.tensor(bias, dtype=torch.float64) + linear(second, hidden)
    return Expected(logits_HST=logits)


@oracle("transformer-xl", {"base": 30.0})
def transformer_xl(case: Case) -> Expected:
    """Dai et al. 2019, section 3.3: terms (a) to (d)."""
    scheme, width = case.scheme, case.width
    base = case.options.get("base", 10_000.0)
    project, u, v = (p.detach().double() for p in (scheme.project_HKD, scheme.u_HK, scheme.v_HK))
    logits = torch.zeros_like(case.scores())

    @cache
    def reach(h: int, r: float) -> torch.Tensor:
        return project[h] @ sinusoid(r)

    @cache
    def sinusoid(r: float) -> torch.Tensor:
        angles = [r * base ** (-2 * c / width) for c in range(width // 2)]
        return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)

    for i in range(logits.shape[1]):
        for j in range(logits.shape[2]):
            for h in range(logits.shape[0]):
                content = (case.q_HSK[h, i] + u[h]) @ case.k_HTK[h, j]
                logits[h, i, j] = content + (case.q_HSK[h, i] + v[h]) @ reach(h, float(case.offsets[i][j]))
    return Expected(logits_HST=logits / math.sqrt(case.q_HSK.shape[-1]))


@oracle(
    "deberta", {"span": 3}, {"span": 3, "p2c": "code"}, {"span": 12, "buckets": 6}, {"terms": "c2p", "span": 4},
    {"terms": "p2c", "span": 4},
)  # fmt: skip
def deberta(case: Case) -> Expected:
    """He et al. 2021, equations 4 and 13; the buckets of version 2 from its code."""
    options, scheme = case.options, case.scheme
    span, buckets = options.get("span", 512), options.get("buckets", 0)
    terms = options.get("terms", "c2p+p2c").split("+")
    side, heads, width = buckets or span, case.q_HSK.shape[0], case.q_HSK.shape[-1]
    table = scheme.table_RD.detach().double()

    def delta(r: int) -> int:
        middle = buckets // 2
        if buckets and abs(r) > middle:
            far = math.log(abs(r) / middle) / math.log((span - 1) / middle) * (middle - 1)
            r = int(math.copysign(middle + math.ceil(far - 1e-12), r))
        return max(0, min(2 * side - 1, r + side))

    @cache
    def projected(layer: torch.nn.Linear, row: int) -> torch.Tensor:
        return linear(layer, table[row]).view(heads, width)

    logits = torch.einsum("hsk,htk->hst", case.q_HSK, case.k_HTK)
    for i in range(logits.shape[1]):
        for j in range(logits.shape[2]):
            r = int(case.offsets[i][j])
            if "c2p" in terms:
                logits[:, i, j] += (case.q_HSK[:, i] * projected(scheme.to_key, delta(r))).sum(-1)
            if "p2c" in terms:
                row = delta(r if options.get("p2c") == "code" else -r)
                logits[:, i, j] += (case.k_HTK[:, j] * projected(scheme.to_query, row)).sum(-1)
    return Expected(logits_HST=logits / math.sqrt((1 + len(terms)) * width))


@oracle("tupe", {"relative": True, "max_length": 20}, {"untie_first": False})
def tupe(case: Case) -> Expected:
    """Ke et al. 2021, equations 6 to 10: reset_θ acts on the sum of the position terms; row after column."""
    options, scheme = case.options, case.scheme
    heads, width = case.q_HSK.shape[0], case.q_HSK.shape[-1]
    untied = options.get("untie_first", True)
    extra = 2 if untied else 0
    weight, shift = scheme.norm.weight.detach().double(), scheme.norm.bias.detach().double()

    @cache
    def p(row: int) -> torch.Tensor:
        raw = scheme.table_PD[row].detach().double()
        return (raw - raw.mean()) / torch.sqrt(raw.var(unbiased=False) + 1e-5) * weight + shift

    @cache
    def projected(layer: torch.nn.Linear | torch.Tensor, row: int) -> torch.Tensor:
        return linear(layer, p(row)).view(heads, width)

    def pair(h: int, a: int, b: int) -> float:
        query, key = projected(scheme.to_query, a), projected(scheme.to_key, b)
        return float(query[h] @ key[h]) / math.sqrt(2 * width)

    asked, found = case.qpos_S.tolist(), case.kpos_T.tolist()
    logits = case.scores() / math.sqrt(2)
    for h in range(heads):
        for i in range(logits.shape[1]):
            for j in range(logits.shape[2]):
                m, n = int(asked[i]), int(found[j])
                if untied and m == 0:
                    logits[h, i, j] += pair(h, 0, 0)
                    continue
                if untied and n == 0:
                    logits[h, i, j] += pair(h, 1, 1)
                    continue
                logits[h, i, j] += pair(h, m + extra, n + extra)
                if options.get("relative"):
                    logits[h, i, j] += float(scheme.relative.table_HN[h, t5_bucket(n - m, not case.causal, 32, 128)])
    return Expected(logits_HST=logits)


@oracle("inkling", {"rank": 3, "extent": 4}, {"rank": 2, "sharpen_after": 3, "slope": 0.5})
def inkling(case: Case) -> Expected:
    """Inkling 2026: the mixture of the query's token over profiles of distance; zero outside the extent."""
    scheme, heads = case.scheme, case.q_HSK.shape[0]
    basis = scheme.basis_GR.detach().double()

    @cache
    def mixture(i: int) -> torch.Tensor:
        return linear(scheme.mixture_GD, case.x_TD[i]).view(heads, -1)

    def term(h: int, i: int, j: int) -> float:
        r = int(case.offsets[i][j])
        if not 0 <= r < basis.shape[1]:
            return 0.0
        return float(mixture(i)[h] @ basis[:, r])

    expected, after = case.add(term), case.options.get("sharpen_after")
    if after is not None:
        for i, p in enumerate(case.qpos_S.tolist()):
            expected.logits_HST[:, i] *= 1 + 0.5 * math.log(max((p + 1) / after, 1.0))
    return expected


@oracle("path", {"rank": 3, "taps": 2}, {"forget": True})
def path(case: Case) -> Expected:
    """Yang et al. 2025, equations 3 and 4: the key's view of the query after every reflection on the way."""
    scheme, heads, width = case.scheme, case.q_HSK.shape[0], case.q_HSK.shape[-1]
    raw = [linear(scheme.up, linear(scheme.down, x)).view(heads, width) for x in case.x_TD]
    logits = case.scores()
    for h in range(heads):
        ws = []
        for smooth in tapped([numbers[h] for numbers in raw], scheme.taps_HKW[h].detach().double()):
            w = torch.tensor([z * sigmoid(z) for z in smooth.tolist()], dtype=torch.float64)
            ws.append(w / w.norm())
        betas = [2 * sigmoid(float(linear(scheme.beta, x)[h])) for x in case.x_TD]
        for i in range(logits.shape[1]):
            arriving = case.q_HSK[h, i].clone()
            forgotten = 0.0
            for j in range(i, -1, -1):
                logits[h, i, j] = arriving @ case.k_HTK[h, j] / math.sqrt(width) + forgotten
                if scheme.gate is not None:
                    forgotten -= softplus(-float(linear(scheme.gate, case.x_TD[j])[h]))
                arriving = arriving - betas[j] * (ws[j] @ arriving) * ws[j]
    return Expected(logits_HST=logits)
