"""The tables [tokenizer], [batches] and [training] of a recipe as settings; their fields are the keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from clockhands.data import Normalisation, TokenKind
from clockhands.model.loss import SmoothingMode
from clockhands.options import Count, NotNegative, Positive, Range, Seed, Share, defaults_of, options_of
from clockhands.settings import settings

Logger = Literal["tensorboard", "wandb", "mlflow", "trackio"]
BoundedCount: TypeAlias = Annotated[int, Range(least=1, most=10_000_000)]
"""A number of tokens, or of occurrences of one; the largest vocabularies in use have a quarter of a million tokens."""


@settings
class Tokenization:
    """``[tokenizer]``: learned from the training text, or an existing one by name.

    ``name`` is a folder or a name on the Hugging Face hub, and so is ``target_name``, for the target side alone.
    Without a name a tokenizer of this ``kind`` is learned, ``shared`` by both sides or one for each; of kind
    ``morpheme`` it is the closed list of a corpus that has one, such as *numbers*, where it is the default (about 7.8
    tokens a number on average, at most 11).
    """

    kind: TokenKind = "bpe"
    vocabulary: BoundedCount | None = None
    shared: bool = True
    lowercase: bool = False
    normalisation: Normalisation = "nfc"
    min_frequency: BoundedCount = 1
    name: str | None = None
    target_name: str | None = None

    ORIGIN = "[tokenizer]"

    def find_faults(self) -> list[str]:
        """Return which values contradict each other, one sentence each."""
        defaults = defaults_of(options_of(Tokenization))
        changed = [name for name, default in defaults.items() if getattr(self, name) != default]
        faults: list[str] = []
        for key in changed:
            if self.kind == "morpheme" and key in ("vocabulary", "min_frequency"):
                faults.append(
                    f"tokenizer.{key} is for a tokenizer that is learned, and kind 'morpheme' is a closed list; "
                    "leave it out, or set tokenizer.kind"
                )
            if self.name is not None and key not in ("name", "target_name"):
                faults.append(f"tokenizer.{key} is for a tokenizer learned here, but tokenizer.name is given")
        if self.name is None and self.target_name is not None:
            faults.append("tokenizer.target_name needs tokenizer.name beside it, for the source")
        return faults


@settings
class Batching:
    """``[batches]``: how examples are put together. ``tokens`` or ``size`` bounds a batch over all processes.

    ``tokens``: examples times the longest side, padding included. ``bucketed``: examples of a batch have like lengths.
    ``max_length``: pairs with a longer side are refused (``raise``), left out (``drop``) or shortened (``cut``); where
    none is given, pairs with a side of more than 1,024 tokens are left out.
    A language model reads windows of ``window`` tokens that start anywhere; ``per_epoch`` batches count as an epoch.
    A masked language model predicts the share ``masked`` of them.
    """

    tokens: Count | None = None
    size: Count | None = None
    bucketed: bool = True
    max_length: Count | None = None
    longer: Literal["raise", "drop", "cut"] = "raise"
    window: Annotated[int, Range(least=2)] = 128
    per_epoch: Count = 1000
    masked: Annotated[float, Range(above=0, below=1)] = 0.15

    ORIGIN = "[batches]"

    def find_faults(self) -> list[str]:
        """Return which values contradict each other, one sentence each."""
        faults = []
        if self.tokens is not None and self.size is not None:
            faults.append("batches.tokens and batches.size both bound a batch; give one of them")
        if self.tokens is not None and not self.bucketed:
            faults.append("batches.tokens bounds batches of like lengths; with bucketed = false give batches.size")
        if self.longer != "raise" and self.max_length is None:
            faults.append(f"batches.longer is {self.longer!r}, which means nothing without batches.max_length")
        return faults


@settings
class Training:
    """``[training]``: from which weights, how long, how fast, how often.

    ``begin_from``: a run, or a Hugging Face folder of this project, with whose weights training begins; what the recipe
    leaves out of [model], [position] and [tokenizer] is as it is there.

    ``text_seed``: train on another draw of the training text, which this number decides: other items of a corpus that
    is made, or items of your text drawn with replacement. Tokenizer, validation and test are those of the first text.

    Length: ``max_steps`` or ``epochs``. Without either, training stops by itself: when the validation loss has not
    fallen for ``patience`` evaluations (then 3), at the latest after 40 epochs or 20,000 steps.
    ``learning_rate`` is the peak; ``auto`` takes one that fits the model (``clockhands.training.schedule``). For
    ``paper`` it is the factor of d_model^-0.5·min(s^-0.5, s·warmup^-1.5), where ``auto`` is 1. During ``warmup_steps``
    the rate rises linearly from ``warmup_from``; ``auto`` is a tenth of all steps, at most 4000, and more with
    post-norm (for a deep model that is trained for a short time: all steps).
    ``inverse-sqrt`` falls as 1/√s from the peak at the end of the warm-up; ``cosine`` falls to ``final_rate``.
    ``clip`` bounds the norm of the gradient (0: no bound).
    The probability ``label_smoothing`` is spread over the tokens that ``smoothing`` names (``all``, ``others``,
    ``others-but-pad``).
    ``accumulate`` batches make a step; the loss is the mean over all their target tokens.
    ``explosion``: stop when the loss is that many times the first one (0: never). ``patience``: evaluations without a
    better validation loss until training stops. The validation loss is computed every ``eval_steps`` steps (``auto``: a
    tenth of all steps, at least 100) and at the end. ``export``: the model saved at the end has the weights of the
    ``last`` step, or those of the evaluation with the ``lowest`` validation loss; ``auto`` is the lowest wherever there
    are several evaluations and ``average`` is not given. ``average``: the saved weights are the mean of the ``keep``
    last or best checkpoints. ``device`` is ``auto``, ``cpu``, ``cuda``.
    ``report_to``: where losses and rates are logged besides the run's own files, by integrations of transformers.
    ``precision`` is ``fp32``, ``bf16`` or ``auto``: bf16 where the hardware multiplies in it (a GPU; a CPU with
    AVX512-BF16 or AMX, for models at least 128 wide); the run keeps what was decided. ``sharded``: the processes that
    torchrun or accelerate started keep a part of the model each (FSDP2) instead of a copy (DDP).

    Checkpoints are saved every ``save_steps`` steps; without that every ``save_minutes`` minutes (0: never), but so
    seldom that they take less than a fiftieth of the time, and at the end. ``keep`` of them stay. For ``export =
    "lowest"`` one is saved too whenever the validation loss is lower than ever before, and the last of these stays.
    """

    begin_from: str | Path | None = None
    max_steps: Count | None = None
    epochs: Positive | None = None
    seed: Seed = 0
    text_seed: Seed | None = None
    optimizer: Literal["adamw"] = "adamw"
    learning_rate: Positive | Literal["auto"] = "auto"
    schedule: Literal["paper", "inverse-sqrt", "cosine", "constant"] = "inverse-sqrt"
    warmup_steps: Annotated[int, Range(least=0)] | Literal["auto"] = "auto"
    warmup_from: NotNegative = 0.0
    final_rate: NotNegative = 0.0
    beta1: Share = 0.9
    beta2: Share = 0.98
    epsilon: Positive = 1e-9
    weight_decay: NotNegative = 0.0
    clip: NotNegative = 1.0
    label_smoothing: Share = 0.0
    smoothing: SmoothingMode = "all"
    accumulate: Count = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: bool = False
    sharded: bool = False
    threads: Count | None = None
    log_steps: Count = 50
    eval_steps: Count | Literal["auto"] | None = "auto"
    export: Literal["auto", "last", "lowest"] = "auto"
    save_steps: Count | None = None
    save_minutes: NotNegative = 1.0
    keep: Count = 2
    average: Literal["none", "last", "best"] = "none"
    patience: Count | None = None
    explosion: NotNegative = 5.0
    report_to: tuple[Logger, ...] = ()

    @property
    def rate(self) -> float:
        """The peak learning rate, or the factor of the paper's schedule.

        Raises ValueError while ``learning_rate`` is still ``auto``.
        """
        if isinstance(self.learning_rate, str):
            raise ValueError("training.learning_rate is 'auto'; training.schedule.fill_in_auto puts a number there")
        return self.learning_rate

    @property
    def warmup(self) -> int:
        """The number of updates of the warm-up. Raises ValueError while ``warmup_steps`` is still ``auto``."""
        if isinstance(self.warmup_steps, str):
            raise ValueError("training.warmup_steps is 'auto'; training.schedule.fill_in_auto puts a number there")
        return self.warmup_steps

    @property
    def evaluation_interval(self) -> int | None:
        """The number of steps between evaluations; None: only at the end."""
        return None if isinstance(self.eval_steps, str) else self.eval_steps

    @property
    def is_saved_regularly(self) -> bool:
        """Whether checkpoints are saved at intervals; when training is stopped, one is saved in any case."""
        return bool(self.save_steps) or self.save_minutes > 0

    ORIGIN = "[training]"

    def find_faults(self) -> list[str]:
        """Return which values contradict each other, one sentence each."""
        is_paper, has_start = self.schedule == "paper", self.warmup_from > 0
        save_steps, eval_steps = self.save_steps, self.eval_steps
        lacks_losses = not isinstance(eval_steps, int) or (save_steps or 0) % eval_steps != 0
        checks = (
            (0 < self.explosion <= 1,
             f"training.explosion is {self.explosion:g}, times the first loss: give more than 1, or 0 for no bound"),
            (None not in (self.max_steps, self.epochs),
             "training.max_steps and training.epochs both say how long; give one of them"),
            (is_paper and self.warmup_steps in (0, "auto"),
             "the schedule 'paper' needs training.warmup_steps (4000 in the paper)"),
            (has_start and self.warmup_steps == 0, "training.warmup_from means nothing without training.warmup_steps"),
            (has_start and is_paper,
             "training.warmup_from means nothing in the schedule 'paper', which starts at 0"),
            (self.final_rate > 0 and self.schedule != "cosine",
             "training.final_rate is of the schedule 'cosine' alone"),
            (self.average != "none" and not save_steps,
             "training.average needs checkpoints at fixed steps: give training.save_steps"),
            (self.patience and not eval_steps, "training.patience counts evaluations: give training.eval_steps"),
            (self.average == "best" and save_steps and lacks_losses,
             "training.average = 'best' needs a validation loss of every checkpoint: training.save_steps must be a "
             "multiple of training.eval_steps"),
            (self.export == "lowest" and not eval_steps,
             "training.export = 'lowest' needs several evaluations: give training.eval_steps"),
            (self.export == "lowest" and self.average != "none",
             "training.export = 'lowest' saves the weights of one evaluation, and training.average the mean of "
             "several; give one of them"),
        )  # fmt: skip
        return [fault for is_wrong, fault in checks if is_wrong]
