"""The controls of the page's encoder, computed by PyTorch: which apply to a model, and what becomes of its input.

The page computes the same in its script; what both count over held-out sentences has to agree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch

from clockhands.data import Pair, encode_texts
from clockhands.errors import UsageError
from clockhands.generation import Search, Translation
from clockhands.generation.translate import bound_length
from clockhands.model.position_config import StackSide
from clockhands.runs import Run
from clockhands.schemes import Scheme, Sinusoidal
from clockhands.shapes import Float, Num, Tensor

_POSITIONS = ("positions", "frozenAt", "offset", "shuffledRows")
_NAMES = {
    "sine_only": "sineOnly",
    "stopped_hand": "stoppedHand",
    "frozen_at": "frozenAt",
    "scale_tokens": "scaleTokens",
}


@dataclass(frozen=True)
class Controls:
    """What is changed about the positions of the encoder; None and False leave it as it was trained.

    Args:
        reversed: the last token stands at position 0.
        frozen_at: every token stands at this position.
        offset: added to every position.
        base: of the wavelengths of sinusoids.
        stopped_hand: the pair of channels that stays where it is at position 0.
        sine_only: the cosine of every pair is 0.
        loudness: factor of the position vectors.
        scale_tokens: whether token embeddings are multiplied by √d_model.
    """

    reversed: bool = False
    frozen_at: float | None = None
    offset: float = 0.0
    base: float | None = None
    stopped_hand: int | None = None
    sine_only: bool = False
    loudness: float | None = None
    scale_tokens: bool | None = None

    def to_page(self) -> dict[str, Any]:
        """Return the controls that are set, by the names that the page has for them."""
        changed = {field.name for field in fields(self) if getattr(self, field.name) != field.default}
        return {_NAMES.get(name, name): value for name, value in vars(self).items() if name in changed}

    def place(self, length: int) -> Num[Tensor, "1 S"]:
        """Return the positions of a text of ``length`` tokens: [1, S]."""
        pos_1S = torch.arange(length)[None]
        pos_1S = pos_1S.flip(1) if self.reversed else pos_1S
        pos_1S = pos_1S if self.frozen_at is None else torch.full_like(pos_1S, 1) * self.frozen_at
        return pos_1S + self.offset if self.offset else pos_1S

    def encode(self, scheme: Scheme, length: int) -> Float[Tensor, "1 S P"] | None:
        """Return the encoding of a text of ``length`` tokens, [1, S, P]; None where the scheme has none."""
        pos_1S = self.place(length)
        encoding: Tensor | None
        if isinstance(scheme, Sinusoidal):
            if self.base is not None:
                amplitude = read_amplitude(scheme)
                scheme = Sinusoidal(
                    scheme.width, layout=scheme.layout, exponent=scheme.exponent, base=self.base, amplitude=amplitude
                )
            encoding = scheme.encode(pos_1S).clone()
            # The channels of each hand's sine, and of its cosine.
            channels = torch.arange(scheme.width)
            sines, cosines = channels.chunk(2) if scheme.layout == "half" else (channels[0::2], channels[1::2])
            if self.stopped_hand is not None:
                pair = [int(sines[self.stopped_hand]), int(cosines[self.stopped_hand])]
                encoding[..., pair] = scheme.encode(torch.zeros_like(pos_1S))[..., pair]
            if self.sine_only:
                encoding[..., cosines] = 0.0
        else:
            encoding = scheme.encode(pos_1S.long())
        return encoding if encoding is None or self.loudness is None else self.loudness * encoding


@contextmanager
def apply_controls(run: Run, *changes: Controls) -> Iterator[None]:
    """Change the encoder's input inside the block; all texts of a batch must be equally long, without padding.

    With several changes each gets an equal share of the rows of every batch, in their order.
    """
    stack = run.model.transformer.get_stack("encoder")
    layer, scheme = stack.input, stack.schemes.at_input
    trained_scale = read_token_scale(run, "encoder")
    full_scale = run.model.config.transformer_config.d_model**0.5
    scales = [{None: trained_scale, True: full_scale, False: 1.0}[controls.scale_tokens] for controls in changes]

    def share(values: Tensor, rows: int) -> Tensor:
        return values.repeat_interleave(rows // len(changes), 0)

    def change(module: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        ids_BS, _ = arguments
        encodings = [controls.encode(scheme, ids_BS.shape[1]) for controls in changes]
        kept = [encoding for encoding in encodings if encoding is not None]
        return ids_BS, share(torch.cat(kept), len(ids_BS)) if kept else None

    def rescale(module: Any, arguments: tuple[Any, ...], embedded_BSD: Tensor) -> Tensor:
        factors_C11 = embedded_BSD.new_tensor([scale / trained_scale for scale in scales])[:, None, None]
        return embedded_BSD * share(factors_C11, len(embedded_BSD))

    hooks = [layer.register_forward_pre_hook(change)]
    if set(scales) != {trained_scale}:
        hooks.append(layer.tokens.register_forward_hook(rescale))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def read_amplitude(scheme: Sinusoidal) -> float:
    """Return the factor of sinusoids, learned or not."""
    return float(torch.as_tensor(scheme.amplitude).detach())


def read_token_scale(run: Run, side: StackSide) -> float:
    """Return the factor on the token embeddings of a side, learned or not."""
    scale = run.model.transformer.get_stack(side).input.scale
    return float(scale.detach() if isinstance(scale, torch.Tensor) else scale)


def list_applicable(run: Run, side: StackSide) -> list[str]:
    """Return the names of the page's controls that act on a side.

    Positions can be given to every model: to one without a scheme they make no difference, and that is a result.
    """
    position = run.model.config.transformer_config.get_position_config(side)
    options = {**position.options}
    names = [*_POSITIONS, *(["scaleTokens"] if read_token_scale(run, side) != 1 else [])]
    if side == "encoder":
        names.append("reversed")
    if position.scheme in ("sinusoidal", "rope"):
        names.append("stoppedHand")
        if options.get("wavelength") is None:
            names.append("base")
    if position.scheme in ("sinusoidal", "index", "learned", "alibi", "t5"):
        names.append("loudness")
    if position.scheme == "sinusoidal" and options.get("waves", "both") == "both":
        names.append("sineOnly")
    return names


UNTOUCHED = "as it was trained"
CONTEXT = 24
"""The tokens of a held-out text of a language model, after which the next one is asked for."""
MEASURED: Mapping[str, Controls] = {
    UNTOUCHED: Controls(),
    "position left out": Controls(loudness=0.0),
    "position ¼ as loud": Controls(loudness=0.25),
    "position ½ as loud": Controls(loudness=0.5),
    "position twice as loud": Controls(loudness=2.0),
    "position 4 times as loud": Controls(loudness=4.0),
    "counted from 1": Controls(offset=1.0),
    "counted from 5": Controls(offset=5.0),
    "source reversed": Controls(reversed=True),
    "every token at position 0": Controls(frozen_at=0.0),
    "sine channels alone": Controls(sine_only=True),
    "tokens without √d": Controls(scale_tokens=False),
    "base 10": Controls(base=10.0),
    "base 100": Controls(base=100.0),
    "base 300": Controls(base=300.0),
    "base 1,000": Controls(base=1_000.0),
    "base 100,000": Controls(base=100_000.0),
    "fastest hand stopped": Controls(stopped_hand=0),
    "second hand stopped": Controls(stopped_hand=1),
    "tenth hand stopped": Controls(stopped_hand=9),
}
"""What is done to the encoder of every model with sinusoids."""


MOST_ROWS = 1_024
"""How many texts are written at once at most, each under each change."""


def measure(
    run: Run, pairs: Sequence[Pair], progress: Callable[[int, int], object] = lambda done, total: None
) -> list[dict[str, Any]]:
    """Return for each change its name, its controls as the page names them, and how many pairs are right.

    A pair is right if its greedy translation is its target, letter by letter; ``confidence`` is the mean over texts of
    the geometric mean of their tokens' probabilities. A model without sinusoids of both waves, added or not, is
    measured untouched alone. ``progress`` is called with how many texts are done, and how many there are.
    """
    if run.architecture == "decoder":
        return [{"name": UNTOUCHED, "controls": {}, **_count_next_tokens(run, pairs)}]
    scheme = run.model.transformer.get_stack("encoder").schemes.at_input
    hands = 0
    if isinstance(scheme, Sinusoidal) and scheme.waves == "both" and scheme.wavelength is None:
        hands = scheme.width // 2
    trained_so = read_token_scale(run, "encoder") == 1
    changes = {
        name: controls
        for name, controls in MEASURED.items()
        if controls == Controls()
        or ((controls.stopped_hand or 0) < hands and not (controls.scale_tokens is False and trained_so))
    }
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    written = translate_controlled(run, sources, list(changes.values()), progress=progress)
    rows = []
    for (name, controls), texts in zip(changes.items(), written, strict=True):
        right = sum(text.text == target for text, target in zip(texts, targets, strict=True))
        confidence = round(sum(math.exp(text.score) for text in texts) / len(texts), 4)
        counts = {"right": right, "of": len(pairs), "confidence": confidence}
        rows.append({"name": name, "controls": controls.to_page(), **counts})
    return rows


def cut_next_tokens(run: Run, documents: Sequence[str], count: int) -> list[Pair]:
    """Return texts of ``CONTEXT`` tokens of documents, each with the token that follows, both as text.

    Left out are those whose text has other tokens than it was cut into. Raises UsageError where none are left.
    """
    tokenizer = run.tokenizers.source
    length = min(CONTEXT, (run.trained_length or CONTEXT + 1) - 1)
    pairs: list[Pair] = []
    for document in documents:
        ids = tokenizer(document, add_special_tokens=False)["input_ids"]
        for start in range(0, len(ids) - length, length + 1):
            window = ids[start : start + length]
            source, target = (str(tokenizer.decode(part)) for part in (window, [ids[start + length]]))
            same = tokenizer(source, add_special_tokens=False)["input_ids"] == window
            if same and source.strip() and target and "\ufffd" not in target:
                pairs.append(Pair(source, target))
            if len(pairs) == count:
                return pairs
    if not pairs:
        raise UsageError(f"the held-out documents of {run.path} are shorter than {length + 1} tokens")
    return pairs


@torch.no_grad()
def _count_next_tokens(run: Run, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Count the texts whose likeliest next token is the one that follows; ``confidence`` is its mean probability."""
    tokenizer = run.tokenizers.source
    right, confidence = 0, 0.0
    for pair in pairs:
        ids_1S = torch.tensor([tokenizer(pair.source, add_special_tokens=False)["input_ids"]], device=run.model.device)
        probabilities_V = run.model(input_ids=ids_1S, use_cache=False).logits[0, -1].float().softmax(-1)
        likeliest = int(probabilities_V.argmax())
        right += tokenizer.decode([likeliest]) == pair.target
        confidence += float(probabilities_V[likeliest])
    return {"right": right, "of": len(pairs), "confidence": round(confidence / len(pairs), 4)}


def translate_controlled(
    run: Run,
    sources: Sequence[str],
    changes: Sequence[Controls],
    beam: int = 1,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[list[Translation]]:
    """Translate texts under each of some changes: a list for each.

    Texts of one length are written together, under all changes at once, so that there is no padding.
    """
    engine = Search(beam, engine="transformers").make_engine(run)  # the modules that the controls change
    ids = encode_texts(run.tokenizers.source, list(sources))
    places: dict[int, list[int]] = defaultdict(list)
    for index, row in enumerate(ids):
        places[len(row)].append(index)
    most = max(1, MOST_ROWS // len(changes))
    translations: dict[tuple[int, int], Translation] = {}
    done = 0
    for length, indices in places.items():
        for first in range(0, len(indices), most):
            some = indices[first : first + most]
            ids_BT = torch.tensor([ids[index] for index in some] * len(changes), device=run.model.device)
            with apply_controls(run, *changes):
                outputs = engine.generate(ids_BT, None, bound_length(length), beam)
            tokens = [output.tokens for output in outputs]
            written = run.tokenizers.target.batch_decode(tokens, skip_special_tokens=True)
            keys = [(change, index) for change in range(len(changes)) for index in some]
            for key, output, text in zip(keys, outputs, written, strict=True):
                score = output.log_probability / len(output.tokens)
                translations[key] = Translation(sources[key[1]], text, score)
            done += len(some)
            progress(done, len(sources))
    return [[translations[change, index] for index in range(len(sources))] for change in range(len(changes))]
