"""Frequencies that are consistent and useless: no law breaks, and places cannot be told apart, or hardly."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from clockhands.checking.checks.check import Inapplicable, Measurement, check
from clockhands.checking.fitting.reading import find_entries, read
from clockhands.checking.fitting.rotation import fit_rotation, fit_speeds
from clockhands.checking.fitting.words import find_sinusoids
from clockhands.checking.models.subject import Subject

_ROWS, _PLACES = 8, 32
_STILL = 1e-10  # radians a place: a frequency of zero is read as exactly that
_LEAST = 0.01  # radians: what turns less within the places that are read tells nothing
_ALIKE = 0.01  # radians, and a tenth of what is between neighbours: places as near as this are one


@check(
    "spectrum.apart",
    "one frequency for all pairs; frequencies of zero or of whole turns; a base by which no pair turns",
    needs=("module",),
    uses=("one text after another",),
)
def _apart(subject: Subject) -> Iterator[Measurement]:
    """The frequencies of a rotation or a sinusoid tell all places of the claimed length apart.

    It is read what a few tokens are at each place: how far each pair turns from one to the next.
    """
    if not subject.aligned:
        raise Inapplicable("about token-wise outputs")
    remarks: list[str] = []
    for speeds in _find_spectra(subject):
        fault = _find_fault(speeds, subject.facts.limit or _PLACES)
        still = int((speeds.abs() <= _STILL).sum())
        remarks += [f"{still} of {len(speeds)} pairs stand still: they carry content alone"] if still else []
        yield Measurement(float(not fault), fault, wanted=True, remark="; ".join(dict.fromkeys(remarks)))


def _find_fault(speeds_C: Tensor, length: int) -> str:
    """Say why frequencies are useless for texts of a length; empty if they are not."""
    moving = speeds_C.abs()[speeds_C.abs() > _STILL]
    reach = float(speeds_C.abs().max()) * _PLACES
    if not len(moving):
        return "no pair turns: every frequency is zero"
    if reach < _LEAST:
        return f"no pair turns by more than {reach:.2g} radians within {_PLACES} places, whole turns aside"
    if len(moving) > 1 and float(moving.max() / moving.min()) < 1 + 1e-4:
        return f"all {len(moving)} pairs turn by the same {float(moving[0]):.4g} radians a place"
    steps = torch.arange(1, max(length, 2), dtype=torch.float64, device=speeds_C.device)[:, None]
    nearest = (torch.remainder(steps * speeds_C + math.pi, 2 * math.pi) - math.pi).abs().amax(1)
    period = int(nearest.argmin()) + 1
    alike = float(nearest[period - 1]) < min(_ALIKE, 0.1 * float(nearest[0]))
    return f"places {period:,} apart are the same, and texts of {length:,} are read" if alike else ""


def _find_spectra(subject: Subject) -> list[Tensor]:
    """Return the angles a place of each pair: of the sinusoids that are added, and of each rotation of queries.

    Raises Inapplicable where there is neither.
    """
    length = min(_PLACES, (subject.facts.limit or _PLACES) - subject.facts.first)
    ids = subject.tokens(1, _ROWS)[0][:, None].repeat(1, length)
    rotating: list[nn.Module] = []
    with contextlib.ExitStack() as stack:
        for part in subject.get_module().modules():
            if any(word in type(part).__name__.lower() for word in ("rotary", "rope")):
                stack.callback(part.register_forward_pre_hook(lambda part, _: rotating.append(part)).remove)
        reading = read(subject, find_entries(subject)[:1], ids, Subject.logits)
    rows = [(state - state[:, :1]).double().mean(0) for state in reading.states]
    added = [
        find_sinusoids(x) for x, state in zip(rows, reading.states, strict=True) if x.abs().max() > 1e-6 * state.std()
    ]
    rotations = [fit_rotation(x.q_BHSK.flatten(0, 1)) for x in reading.measure().values() if x.is_of_text]
    angles = [x for x in added if x is not None]
    rotated = [rotation.rotated_SC for rotation in rotations if rotation is not None and rotation.rotates]
    # What is other at the first place alone, and hardly so, is a norm's rounding of what only later tokens have.
    angles += [x for x in rotated if x.abs().max() > _LEAST or x[-1].abs().max() > 2 * x[1].abs().max()]
    if not angles and rotating and any(rotation is not None and not rotation.count for rotation in rotations):
        angles = [torch.zeros(2, 1, dtype=torch.float64)]  # a rotation ran, and nothing was rotated
    spectra: list[Tensor] = []
    for speeds in map(fit_speeds, angles):
        if not any(speeds.shape == other.shape and torch.allclose(speeds, other, atol=1e-6) for other in spectra):
            spectra.append(speeds)
    if not spectra:
        raise Inapplicable("no rotation and no sinusoid was found")
    return spectra
