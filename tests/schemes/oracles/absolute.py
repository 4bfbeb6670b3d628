"""Oracles of the schemes that enter at the token embedding."""

from __future__ import annotations

import math

import numpy as np
import torch

from tests.schemes.oracles.registry import Case, Expected, oracle


@oracle("none")
def no_position(case: Case) -> Expected:
    return Expected(logits_HST=case.scores())


def empty(case: Case) -> torch.Tensor:
    return torch.zeros(len(case.qpos_S), case.width, dtype=torch.float64)


@oracle(
    "index",
    {"form": "value"},
    {"form": "direction", "amplitude": 0.5},
    {"form": "direction", "learned_direction": True, "normalise": "maximum", "max_length": 40},
    {"normalise": "length"},
    {"normalise": "maximum", "form": "value"},
)
def index(case: Case) -> Expected:
    """p, p/(n - 1) or p/(L_max - 1), times a vector."""
    table, o = empty(case), case.options
    divisor = {"none": 1, "length": max(case.qpos_S.tolist()), "maximum": o.get("max_length", 512) - 1}
    unit = np.random.RandomState(0).standard_normal(case.width)
    unit = unit / math.sqrt(sum(u * u for u in unit))
    if o.get("learned_direction"):
        unit = case.scheme.direction_P.tolist()
    for s, p in enumerate(case.qpos_S.tolist()):
        number = o.get("amplitude", 1.0) * p / divisor[o.get("normalise", "none")]
        for c in range(case.width):
            form = o.get("form", "channel")
            table[s, c] = number * (float(c == 0) if form == "channel" else 1.0 if form == "value" else unit[c])
    return Expected(encode_SP=table)


@oracle("binary", {"digits": 5, "values": "unsigned", "amplitude": 2.0})
def binary(case: Case) -> Expected:
    table, o = empty(case), case.options
    digits = o.get("digits", 16)
    for s, p in enumerate(case.qpos_S.tolist()):
        text = f"{int(p):0{digits}b}"[::-1]
        for c in range(case.width):
            digit = int(text[c % digits])
            signed = o.get("values", "signed") == "signed"
            table[s, c] = o.get("amplitude", 1.0) * (2 * digit - 1 if signed else digit)
    return Expected(encode_SP=table)


@oracle("random", {"rows": "shuffled", "max_length": 32, "seed": 3}, {"amplitude": 0.1, "max_length": 16})
def random(case: Case) -> Expected:
    o = case.options
    stream, length = np.random.RandomState(o.get("seed", 0)), o.get("max_length", 1024)
    if o.get("rows") == "shuffled":
        order = stream.permutation(length)
        rows = [[wave(order[p], c, case.width, 10_000.0) for c in range(case.width)] for p in case.qpos_S.tolist()]
        return Expected(encode_SP=torch.tensor(rows, dtype=torch.float64))
    rows = stream.standard_normal((length, case.width)) * math.sqrt(0.5)
    return Expected(encode_SP=o.get("amplitude", 1.0) * torch.tensor(rows)[case.qpos_S])


def wave(p: float, c: int, width: int, base: float) -> float:
    """PE(p, c) as the paper prints it."""
    angle = p / base ** (2 * (c // 2) / width)
    return math.sin(angle) if c % 2 == 0 else math.cos(angle)


@oracle(
    "sinusoidal", {"layout": "half"}, {"exponent": "tensor2tensor", "layout": "half"},
    {"base": 100.0, "amplitude": 0.3}, {"learned_amplitude": True, "amplitude": 2.0}, {"waves": "sine"},
    {"waves": "cosine", "base": 50.0}, {"random_phases": True, "seed": 5}, {"wavelength": 7.5},
)  # fmt: skip
def sinusoidal(case: Case) -> Expected:
    """Vaswani et al. 2017, section 3.5; Tensor2Tensor ``get_timing_signal_1d`` for the other exponent."""
    d, o, table = case.width, case.options, empty(case)
    waves, half = o.get("waves", "both"), o.get("layout") == "half"
    phases = np.random.RandomState(o.get("seed", 0)).uniform(0, 2 * math.pi, d)
    amplitude = float(torch.as_tensor(case.scheme.amplitude).detach())
    for s, p in enumerate(case.qpos_S.tolist()):
        for channel in range(d):
            if waves != "both":
                hand, count, is_sine = channel, d, waves == "sine"
            elif half:
                hand, count, is_sine = channel % (d // 2), d // 2, channel < d // 2
            else:
                hand, count, is_sine = channel // 2, d // 2, channel % 2 == 0
            power = hand / count if o.get("exponent", "paper") == "paper" else hand / (count - 1)
            omega = 2 * math.pi / o["wavelength"] if "wavelength" in o else o.get("base", 10_000.0) ** -power
            phase = phases[channel] if o.get("random_phases") else 0.0
            function = math.sin if is_sine else math.cos
            table[s, channel] = amplitude * function(p * omega + phase)
    return Expected(encode_SP=table)


@oracle("learned", {"offset": 2, "max_length": 20}, {"beyond": "clamp", "max_length": 4})
def learned(case: Case) -> Expected:
    """One row a position; clamped positions share the last row; ``offset`` rows stay unused (fairseq)."""
    table, o = case.scheme.table_LP.detach().double(), case.options
    last = o.get("max_length", 512) - 1
    rows = [table[min(int(p), last) + o.get("offset", 0)] for p in case.qpos_S.tolist()]
    return Expected(encode_SP=torch.stack(rows))


@oracle("sinusoidal-axes", {"layout": "half", "start": 1.0, "base": 20.0}, {"axes": 3, "amplitude": 0.5})
def sinusoidal_axes(case: Case) -> Expected:
    """The paper's sinusoid on each axis's own d/A channels."""
    table, o = empty(case), case.options
    axes, start, base = o.get("axes", 2), o.get("start", 0.0), o.get("base", 10_000.0)
    share = case.width // axes
    for s, point in enumerate(case.qpos_S.tolist()):
        for a, p in enumerate(point):
            for c in range(share):
                channel = c
                if o.get("layout") == "half":
                    channel = 2 * c if c < share // 2 else 2 * (c - share // 2) + 1
                table[s, a * share + c] = o.get("amplitude", 1.0) * wave(p + start, channel, share, base)
    return Expected(encode_SP=table)


@oracle("learnable-fourier", {"axes": 2, "features": 10, "hidden": 7, "gamma": 2.0})
def learnable_fourier(case: Case) -> Expected:
    """Li et al. 2021, equations 1 to 3."""
    weight, table = case.scheme.frequency_FA.detach().double(), empty(case)
    first, second = case.scheme.first, case.scheme.second
    features = 2 * weight.shape[0]
    for s in range(len(case.qpos_S)):
        point = torch.atleast_1d(case.qpos_S[s]).tolist()
        angles = [sum(w * p for w, p in zip(row, point, strict=True)) for row in weight.tolist()]
        r = [math.cos(a) / math.sqrt(features) for a in angles] + [math.sin(a) / math.sqrt(features) for a in angles]
        hidden = first.weight.double() @ torch.tensor(r, dtype=torch.float64) + first.bias.double()
        gelu = torch.tensor([h * 0.5 * (1 + math.erf(h / math.sqrt(2))) for h in hidden.tolist()], dtype=torch.float64)
        table[s] = (second.weight.double() @ gelu + second.bias.double()).detach()
    return Expected(encode_SP=table)


@oracle("time2vec", {"wave": "cos", "start": "normal"}, {"start": "uniform"})
def time2vec(case: Case) -> Expected:
    """Kazemi et al. 2019, equation 1."""
    omega, phase = case.scheme.omega_P.tolist(), case.scheme.phase_P.tolist()
    function = math.cos if case.options.get("wave") == "cos" else math.sin
    table = empty(case)
    for s, p in enumerate(case.qpos_S.tolist()):
        for c in range(case.width):
            angle = omega[c] * p + phase[c]
            table[s, c] = angle if c == 0 else function(angle)
    return Expected(encode_SP=table)


@oracle("universal", {"layout": "half", "exponent": "tensor2tensor", "start": 0}, {"base": 7.0})
def universal(case: Case) -> Expected:
    """Dehghani et al. 2019, equations 6 and 7, in the first layer."""
    d, o, table = case.width, case.options, empty(case)
    base, start, half = o.get("base", 10_000.0), o.get("start", 1), o.get("layout") == "half"
    for s, p in enumerate(case.qpos_S.tolist()):
        for channel in range(d):
            hand = channel % (d // 2) if half else channel // 2
            is_sine = channel < d // 2 if half else channel % 2 == 0
            omega = base ** -(hand / (d / 2 - 1) if o.get("exponent") == "tensor2tensor" else 2 * hand / d)
            function = math.sin if is_sine else math.cos
            table[s, channel] = function((p + start) * omega) + function(start * omega)
    return Expected(encode_SP=table)


@oracle("fourier-bands", {"axes": 2, "resolution": 4, "bands": 3})
def fourier_bands(case: Case) -> Expected:
    """Jaegle et al. 2021, section 3.2: coordinates, sines, cosines; frequencies from 1 to half the resolution."""
    axes, resolution = case.options.get("axes", 1), case.options.get("resolution", 512)
    bands = case.options.get("bands", (case.width // axes - 1) // 2)
    rows = []
    for place in case.kpos_T.reshape(len(case.kpos_T), -1).tolist():
        x = [2 * p / (resolution - 1) - 1 for p in place]
        angles = [math.pi * at * (1 + (resolution / 2 - 1) * f / (bands - 1)) for at in x for f in range(bands)]
        row = [*x, *map(math.sin, angles), *map(math.cos, angles)]
        rows.append(row + [0.0] * (case.width - len(row)))
    return Expected(encode_SP=torch.tensor(rows, dtype=torch.float64))
