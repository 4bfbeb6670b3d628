"""Compare a port with its reference: how far are the logits apart, where first, and what explains it?"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import CHECKS, TOLERANCE, difference
from clockhands.checking.examination import DRAWN, find_damage, has_config, only_build, open_reference, refuse
from clockhands.checking.fitting.causes import explain_check
from clockhands.checking.fitting.explain import explain
from clockhands.checking.models import make_subjects
from clockhands.checking.models.subject import Subject
from clockhands.checking.models.tiny import shrink_published
from clockhands.checking.runtimes.naming import compare_scores, name_difference
from clockhands.checking.runtimes.program import Program, is_program, open_program
from clockhands.errors import CheckpointError, UsageError
from clockhands.findings import Finding, Reference, Table
from clockhands.models import open_with_head
from clockhands.models.streaming import is_streamed

_LENGTH = 32
_LAWS = ("cache.steps", "padding.left.mask")
_UNEXPLAINED = (
    "Nothing that was fitted explains it: neither angles, biases, masks and scales of attention, nor what enters the "
    "first layer."
)


@dataclass(frozen=True)
class Deviation:
    """How far a model is from its reference, in standard deviations of the reference's logits.

    ``position`` and ``layer`` are where the difference first shows (layer 0 is the embedding; None where hidden
    states cannot be had). ``explanation`` says what was fitted and, undone, makes both agree; it is empty where
    nothing does. ``check`` is set where both agree on a whole text and the model breaks a law that its reference
    keeps; ``size`` is then by how much. ``tried`` holds all that was fitted, with how far both are apart when it alone
    is undone. ``kl_mean`` and ``kl_p99`` (99th percentile) are the Kullback-Leibler divergence of the next-token
    distributions from the reference's, in nats, over the tokens of the text; ``top1`` is the share of tokens after
    which both find the same token most probable. None where only scores of single tokens are had.
    """

    model: str
    reference: str
    size: float
    position: int | None
    layer: int | None
    explanation: str
    tried: tuple[tuple[str, float], ...]
    check: str = ""
    tolerance: float = TOLERANCE
    kl_mean: float | None = None
    kl_p99: float | None = None
    top1: float | None = None

    @property
    def same(self) -> bool:
        """Whether both give the same logits."""
        return self.size <= self.tolerance

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "same": self.same}

    def to_finding(self) -> Finding:
        """Return the result as a finding, which opens the page that it stands on."""
        verdict = self.text().replace("  ", " ")
        return Finding(
            "check.against",
            f"Does it compute what {self.reference} computes?",
            verdict,
            self.size,
            "std",
            references=(Reference("allowed", TOLERANCE),),
            light="good" if self.same else "bad",
            table=Table.of(("undone alone", "then apart by, in std of the logits"), self.tried),
            method="Both read the same text. What could explain a difference is fitted on the first layer, and undone.",
            details={"opening": verdict},
        )

    def text(self) -> str:
        """Return the result in words."""
        head = f"{self.model} against {self.reference}"
        if self.same:
            said = f"PASS  {head}: the logits are the same, within {self.size:.2g} standard deviations."
            return f"{said}\n{self._quote()}".rstrip()
        head = f"{head}: the logits differ by up to {self.size:.2g} standard deviations"
        layer = "" if self.layer is None else f", layer {self.layer}"
        where = f"first difference at position {self.position}{layer}"
        if self.check:
            where = f"the same on a whole text, but {self.check} fails, which the reference passes"
        lines = [f"FAIL  {head}; {where}."]
        lines.append(f"Explained by: {self.explanation}." if self.explanation else _UNEXPLAINED)
        return "\n".join(filter(None, [*lines, self._quote()]))

    def _quote(self) -> str:
        """Return what porters quote: divergence and agreement of what comes next; empty where it is not known."""
        if self.kl_mean is None:
            return ""
        return (
            f"Next token: KL divergence from the reference {self.kl_mean:.2g} nats on average, {self.kl_p99:.2g} at "
            f"the 99th percentile; the most probable token is the same after {self.top1:.1%} of the tokens."
        )


def compare(
    model: Any,
    reference: Any,
    *,
    tiny: bool = False,
    dtype: str | None = None,
    device: str | None = None,
    weights: str | None = None,
    trust_remote_code: bool = False,
    served: str | None = None,
) -> Deviation:
    """Compare a model with its reference on the same text, and fit what explains a difference.

    Each is a folder, a hub name, a model or an adapter. With ``tiny`` both configurations are shrunk and get the same
    weights, so that only what the configurations say about position can differ. Raises UsageError if the vocabularies
    differ, with ``tiny`` also if the weights do not fit; or an argument would be ignored.
    """
    if tiny:
        refuse("tiny", DRAWN, dtype=dtype, device=device, weights=weights)
    if not any(
        isinstance(either, (str, Path)) and (not tiny or has_config(str(either))) for either in (model, reference)
    ):
        arguments = {"dtype": dtype, "device": device, "weights": weights, "trust_remote_code": trust_remote_code}
        refuse("a comparison without a folder or hub name", "are about opening one", **arguments)
    if isinstance(model, (str, Path)) and is_program(str(model)):
        theirs = open_reference(str(reference))
        return _compare_whole(open_program(str(model), served, theirs), theirs)
    options = (dtype or "float32", device or "cpu", trust_remote_code, weights)
    ours, theirs = [_open(either, tiny, *options) for either in (model, reference)]
    if ours.adapter.vocabulary != theirs.adapter.vocabulary:
        raise UsageError(
            f"{ours.name} has {ours.adapter.vocabulary} tokens, {theirs.name} {theirs.adapter.vocabulary}: "
            "only models of the same vocabulary can be compared"
        )
    if tiny:
        try:
            ours.get_module().load_state_dict(dict(theirs.get_module().named_parameters()), strict=False)
        except RuntimeError as fault:
            first, *more = str(fault).splitlines()
            raise UsageError(
                f"{ours.name} and {theirs.name} differ in the shapes of their weights, so that --tiny cannot give them "
                f"the same ones: {more[0].strip() if more else first}"
            ) from fault
    return _compare_whole(ours, theirs)


def _compare_whole(ours: Subject, theirs: Subject) -> Deviation:
    """Compare, if both give numbers. Raises CheckpointError for one whose logits are not finite, or all the same."""
    for subject in (ours, theirs):
        if damage := find_damage(subject):
            raise CheckpointError(f"{subject.name}: {damage}")
    return compare_subjects(ours, theirs)


def measure_divergence(actual: Tensor, wanted: Tensor) -> dict[str, Any]:
    """Return KL divergence (mean and 99th percentile) and top-1 agreement of logits [B, S, V], as in ``Deviation``.

    A program may have fewer tokens than the weights have rows: those that both have are compared.
    """
    width = min(actual.shape[-1], wanted.shape[-1])
    ours, theirs = (logits[..., :width].double().cpu().log_softmax(-1) for logits in (actual, wanted))
    divergence = (theirs.exp() * (theirs - ours)).sum(-1).clamp(min=0.0).flatten()
    agreement = (ours.argmax(-1) == theirs.argmax(-1)).double().mean().item()
    return {"kl_mean": divergence.mean().item(), "kl_p99": divergence.quantile(0.99).item(), "top1": agreement}


def compare_subjects(ours: Subject, theirs: Subject) -> Deviation:
    """Compare two opened subjects: of a program its scores of the text's own tokens, of others all logits."""
    names = ours.name, theirs.name
    if isinstance(ours.adapter, Program):
        size, tolerance, ids, actual, wanted = compare_scores(ours, theirs)
        divergence = {} if ours.adapter.scored else measure_divergence(ours.logits(ids), theirs.logits(ids))
        first, said = None, ""
        if size > tolerance:
            first = int(((actual - wanted).abs() / wanted.std() > tolerance).nonzero()[0, 1])
            said = name_difference(ours, theirs)
        return Deviation(*names, size, first, None, said, (), tolerance=tolerance, **divergence)
    ids = theirs.tokens(2, min(_LENGTH, (theirs.facts.limit or _LENGTH) - 2))
    actual, wanted = ours.logits(ids), theirs.logits(ids)
    if actual.shape != wanted.shape:
        raise UsageError(
            f"{ours.name} returns {actual.shape[-1]} numbers for each token and {theirs.name} {wanted.shape[-1]}: "
            "one was saved without its output layer; give two models of one kind"
        )
    size, divergence = difference(actual, wanted), measure_divergence(actual, wanted)
    if size <= TOLERANCE:
        same = Deviation(*names, size, None, None, "", (), **divergence)
        return _compare_laws(ours, theirs, divergence) or same
    clues, tried = explain(ours, theirs, ids, wanted, size)
    gaps = (actual - wanted).abs().amax((0, 2)) / wanted.std()
    first = int((gaps > TOLERANCE).nonzero()[0])
    layer = _find_first_layer(ours, theirs, ids)
    return Deviation(*names, size, first, layer, "; ".join(clues), tried, **divergence)


def _compare_laws(ours: Subject, theirs: Subject, divergence: dict[str, Any]) -> Deviation | None:
    """Return how far ours is from a law of caching or padding that the reference keeps; None if from none.

    Not of streamed weights, which every decoding step would read again.
    """
    if ours.module is None or is_streamed(ours.module):
        return None
    for name in _LAWS:
        sizes = []
        for subject in (ours, theirs):
            with contextlib.suppress(Exception):  # a model may raise anything
                applies = CHECKS[name].inapplicable(subject) is None
                sizes.append(CHECKS[name].measure(subject.copy_untouched()).size if applies else 0.0)
        if len(sizes) == 2 and sizes[1] <= TOLERANCE < sizes[0]:
            explanation = explain_check(ours, name)
            return Deviation(ours.name, theirs.name, sizes[0], None, None, explanation, (), name, **divergence)
    return None


def _find_first_layer(ours: Subject, theirs: Subject, ids: Tensor) -> int | None:
    """Return the first hidden state that differs; None unless both are models of transformers with as many layers."""
    states = []
    for subject in (ours, theirs):
        module: Any = subject.module
        if not hasattr(subject.adapter, "inputs"):
            return None
        with torch.no_grad():
            output = module(**subject.adapter.inputs(ids), output_hidden_states=True)
        own = getattr(output, "hidden_states", None) or getattr(output, "decoder_hidden_states", None)
        states.append(own or ())
    pairs = list(zip(*states, strict=False)) if len(states[0]) == len(states[1]) else []
    return next((layer for layer, pair in enumerate(pairs) if difference(*pair) > TOLERANCE), None)


def _open(model: Any, tiny: bool, dtype: str, device: str, trust_remote_code: bool, weights: str | None) -> Subject:
    if not isinstance(model, (str, Path)):
        return make_subjects.from_model(model)[0]
    name = str(model)
    if not tiny:
        opened, task = open_with_head(name, dtype, device, trust_remote_code, weights)
        return make_subjects.from_model(opened, name, name, task)[0]
    if has_config(name):
        build, config = shrink_published(name, trust_remote_code)
        subject = make_subjects.from_build(build, config)[0]
    else:
        subject = make_subjects.from_build(only_build(name))[0]
    subject.name = name
    return subject
