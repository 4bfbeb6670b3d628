"""Trains a model briefly with a method in place: on texts of the new length, or skip-wise on texts of the trained one.

Skip-wise (PoSE; Zhu et al. 2024): the tokens of a short text get positions all over a long one, which costs no more
than short texts do. What every step reads is drawn from the seed and its number, so training goes on exactly where it
was stopped.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.data import Example, MaskedCollator
from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.extension.choose import GUARD, Judged, measure_short
from clockhands.extension.methods import read_by_cache
from clockhands.extension.reading import Drift, Stream, measure_drift
from clockhands.files import UNFINISHED
from clockhands.findings import Finding, Reference, Table, draw_columns, put_together
from clockhands.models import LanguageModel
from clockhands.models.streaming import is_streamed
from clockhands.positions import make_transform
from clockhands.pretrained import load_state
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Int, Tensor

SAVE_SECONDS = 30.0
"""Between two checkpoints."""
WARM_UP = 0.1
"""The share of the steps over which the learning rate rises; it falls linearly over the rest."""


@dataclass(frozen=True)
class Tuning:
    """How a model is trained further.

    Args:
        steps: of the optimiser (AdamW).
        windows: ``skip`` (texts of the trained length, with positions all over the new one) or ``full``.
        batch: texts a step.
        learning_rate: the largest; None: 0.1 / d_model, which is 1e-3 for a width of 100, and near the 2e-5 with which
            models of 4,096 are extended.
        seed: of what is read.

    Raises UsageError for numbers that train nothing.
    """

    steps: int
    windows: Literal["skip", "full"] = "skip"
    batch: int = 8
    learning_rate: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1:
            raise UsageError(f"training takes 1 step and 1 text or more; got {self.steps} and {self.batch}")
        if self.learning_rate is not None and not 0 < self.learning_rate < 1:
            raise UsageError(f"the learning rate is {self.learning_rate}; it lies between 0 and 1")


def refuse_untrainable(model: LanguageModel, tuning: Tuning) -> None:
    """Raise UsageError for weights that are left in files, and for skip-wise training without ``position_ids``."""
    if is_streamed(model.model):
        raise UsageError(f"the weights of {model.source} are left in their files; to train, give --weights memory")
    if tuning.windows == "skip" and "position_ids" not in inspect.signature(model.model.forward).parameters:
        raise UsageError(
            f"{model.source} takes no position_ids, so it cannot be trained skip-wise; give --windows full"
        )


def tune(
    model: LanguageModel,
    stream: Stream,
    tuning: Tuning,
    trained: int,
    longest: int,
    *,
    checkpoint: Path | None = None,
    signature: str = "",
    progress: CountProgress = ignore_count,
) -> list[float]:
    """Train a model in place on a stream, and return the loss of every step.

    ``checkpoint``: where it is saved, and from where it goes on if that was made with the same ``signature``. Raises
    what ``refuse_untrainable`` raises, UsageError for a stream shorter than a window, CheckpointError for a checkpoint
    of something else.
    """
    refuse_untrainable(model, tuning)
    length = longest if tuning.windows == "full" else trained
    if len(stream) < length:
        raise UsageError(f"the text has {len(stream):,} tokens, less than one window of {length:,}; give more text")
    weights = [weight for weight in model.model.parameters() if weight.requires_grad]
    rate = tuning.learning_rate or 0.1 / float(model.model.get_input_embeddings().weight.shape[-1])
    optimizer = torch.optim.AdamW(weights, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    losses = _load(model, optimizer, checkpoint, signature)

    def save() -> None:
        """Write what training goes on from, whole or not at all."""
        if checkpoint is None:
            return
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        unfinished = checkpoint.with_name(checkpoint.name + UNFINISHED)
        state = {"model": model.model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}
        torch.save({**state, "signature": signature}, unfinished)
        unfinished.replace(checkpoint)

    saved, warm = time.monotonic(), max(1, int(WARM_UP * tuning.steps))
    model.model.train()
    try:
        for step in range(len(losses), tuning.steps):
            progress("training steps", step, tuning.steps)
            # The rate rises over the warm-up, then falls to a tenth.
            share = (step + 1) / warm if step < warm else 1.0 - 0.9 * (step - warm) / max(1, tuning.steps - warm)
            for group in optimizer.param_groups:
                group["lr"] = rate * share
            losses.append(_take_step(model, optimizer, weights, stream, tuning, length, longest, step))
            if time.monotonic() - saved > SAVE_SECONDS:
                save()
                saved = time.monotonic()
    except KeyboardInterrupt:
        save()
        raise
    finally:
        model.model.eval()
    progress("training steps", tuning.steps, tuning.steps)
    return losses


def _load(model: LanguageModel, optimizer: torch.optim.Optimizer, path: Path | None, signature: str) -> list[float]:
    """Restore a checkpoint into model and optimiser, and return the losses so far; none without a checkpoint."""
    if path is None or not path.exists():
        return []
    try:
        state: Any = load_state(path)
        if state["signature"] != signature:
            return []
        model.model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return [float(loss) for loss in state["losses"]]
    except Exception as fault:  # torch raises anything for a file that is none of its own
        raise CheckpointError(f"{path} cannot be read, so training cannot go on from it; remove it") from fault


def _take_step(
    model: LanguageModel, optimizer: torch.optim.Optimizer, weights: list[Any], stream: Stream, tuning: Tuning,
    length: int, longest: int, step: int,
) -> float:  # fmt: skip
    """Train on one batch, and return its loss. Random numbers follow from the seed and the number of the step."""
    # Windows of the stream, each after what the tokenizer puts before every text.
    own = length - len(model.start_ids)
    begins_B = np.random.default_rng([tuning.seed, step]).integers(0, len(stream) - own + 1, tuning.batch)
    before_BS = np.broadcast_to(np.asarray(model.start_ids, np.int64), (tuning.batch, len(model.start_ids)))
    drawn_BS = np.concatenate([before_BS, stream[begins_B[:, None] + np.arange(own)]], axis=1)
    arguments: dict[str, Any] = {}
    if tuning.windows == "skip":
        arguments["position_ids"] = _draw_positions(tuning, length, longest, step).to(model.device)
    seed = hash((tuning.seed, step)) % 2**31
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(seed)
        if model.mask_id is None:
            ids_BS = torch.from_numpy(drawn_BS).to(model.device)
            logits_BSV = model.model(input_ids=ids_BS, use_cache=False, **arguments).logits[:, :-1]
            labels_BS = ids_BS[:, 1:]
        else:  # tokens are drawn and masked as BERT does
            rows: list[Example] = [{"input_ids": row_S, "labels": row_S} for row_S in drawn_BS.astype(np.int32)]
            batch = MaskedCollator.of(model.tokenizer, seed=seed)(rows)
            logits_BSV = model.model(input_ids=batch["input_ids"].to(model.device), **arguments).logits
            labels_BS = batch["labels"].to(model.device)
        loss = F.cross_entropy(logits_BSV.float().transpose(1, 2), labels_BS)
    if not torch.isfinite(loss):
        raise DataError(f"the loss of step {step} is {float(loss)}; give a smaller --learning-rate")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    optimizer.step()
    return float(loss.detach())


def _draw_positions(tuning: Tuning, length: int, longest: int, step: int) -> Int[Tensor, "B S"]:
    generator = torch.Generator().manual_seed(hash((tuning.seed, step, 1)) % 2**31)
    transform = make_transform("skipping", {"maximum": longest})
    pos_BS: Tensor = transform(torch.arange(length).repeat(tuning.batch, 1), training=True, generator=generator)
    return pos_BS


def judge_tuned(
    tuned: LanguageModel, chosen: Judged, short_N: Float[np.ndarray, " N"], stream: Stream, texts: int
) -> Judged:
    """Measure a trained model as the chosen method was judged; ``short_N``: ``measure_short`` before it was changed.

    What it finds in long texts is not measured again.
    """
    lengths, count = chosen.drift.lengths, len(chosen.drift.losses_NR)

    def measure() -> Drift:
        return measure_drift(tuned, stream, lengths, tail=chosen.drift.tail, texts=count)

    drift, cached = measure(), None
    if chosen.cached is not None:
        with read_by_cache(tuned, chosen.method, lengths[0]):
            cached = measure()
    after_N = measure_short(tuned, stream, lengths[0], texts)
    (cost,) = compare_with_baseline([after_N[:, None]], [short_N[:, None]])
    return replace(
        chosen, drift=drift, cached=cached, cost=cost, short_loss=float(short_N.mean()), retrieval=None,
        cached_retrieval=None,
    )  # fmt: skip


def make_tuning_finding(before: Judged, after: Judged, steps: Sequence[float], tuning: Tuning) -> Finding:
    """Return the finding of a training: a method before and after it, and the loss of every step."""
    lengths = after.drift.lengths
    places = range(len(lengths))
    changes = compare_with_baseline(
        [after.drift.losses_NR[:, [place]] for place in places],
        [before.drift.losses_NR[:, [place]] for place in places],
    )
    last, (value, low, high) = changes[-1], after.cost_percent
    word = "falls" if last.high < 0 else "rises" if last.low > 0 else "is not shown to change"
    guard = f"shown to be below the guard of {GUARD:.0%}" if after.passes else f"not shown to be below {GUARD:.0%}"
    verdict = (
        f"At {lengths[-1]:,} tokens the loss {word}: {last.value:+.3f} nats [{last.low:+.3f}, {last.high:+.3f}]. "
        f"On texts of the trained length training and method cost {value:+.2f} % [{low:+.2f}, {high:+.2f}], {guard}."
    ).replace("-", "−")
    means = {"before training": before.drift.losses_NR.mean(0), "after": after.drift.losses_NR.mean(0)}
    spans = [(change.value, change.low, change.high) for change in changes]
    rows = [(*row, *span) for *row, span in zip(lengths, *means.values(), spans, strict=True)]
    by_length = draw_columns(
        "line", [f"{length:,}" for length in lengths], means, main="after",
        reference=("before training",), panel="Loss of the same last tokens", xlabel="tokens of text",
        ylabel="nats per token",
    )  # fmt: skip
    by_step = draw_columns(
        "line", range(1, len(steps) + 1), {"training": steps}, panel="Training", xlabel="step",
        ylabel="nats per token",
    )  # fmt: skip
    windows = {"skip": "skip-wise, in windows of the trained length", "full": "in windows of the new length"}
    return Finding(
        "extend.trained",
        f"What did {tuning.steps:,} steps of training give?",
        verdict,
        last.value,
        "nats per token",
        (last.low, last.high),
        references=(Reference("before training", 0.0),),
        light="good" if last.high < 0 and after.passes else "warn",
        table=Table.of(["tokens", "before", "after", "change", "low", "high"], rows),
        figure=put_together(
            (by_length, by_step), columns=2, title="Before and after training, and the loss of its steps"
        ),
        method=f"Trained {windows[tuning.windows]}, on text that the judgement does not read. Paired by text.",
        source="PoSE (Zhu et al. 2024)" if tuning.windows == "skip" else "",
        details={"group": "What training gives"},
    )
