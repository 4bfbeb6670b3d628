"""Writes the vectors that the engine of the explorer is tested against: tiny random models, run by PyTorch.

    python explorer/tests/vectors/generate.py

Every file holds a model as the page holds it (weights in float32), texts, and what PyTorch makes of them. Together the
models have every scheme and every option that runs in a page. ``tests/exploring/test_vectors.py`` says whether the
files are what this script writes.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from clockhands.attention import record
from clockhands.data import Corpus, Pair, encode_texts
from clockhands.data.tokens import train_tokenizers
from clockhands.exploring.model_data import describe_model
from clockhands.generation import Search
from clockhands.model import TokenBatch, TransformerConfig
from clockhands.model.huggingface import ClockhandsForCausalLM, ClockhandsForSeq2SeqLM
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.runs import Run, open_run

HERE = Path(__file__).parent
TEXTS = ("Tom bit a dog", "a small dog in the old house bit Tom", "dog")
TARGETS = ("Tom mordis hundon", "malgranda hundo en la malnova domo mordis Tom", "hundo")
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
MOST = 12
"""The tokens of a translation: random models do not end one."""

MODELS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"norm": "pre", "sides": "sinusoidal"},
    "sinusoidal-post": {
        "activation": "gelu", "attention_bias": True, "output_bias": True, "tying": "none",
        "sides": {
            "scheme": "sinusoidal", "layout": "half", "exponent": "tensor2tensor", "amplitude": 0.5, "base": 50.0,
        },
    },
    "sinusoidal-concatenated": {
        "norm": "pre", "token_scale": "one", "tying": "none",
        "sides": {"scheme": "sinusoidal", "combine": "concatenate", "width": 4},
    },
    "sinusoidal-cosines": {"norm": "pre", "sides": {"scheme": "sinusoidal", "waves": "cosine", "every_layer": True}},
    "learned": {
        "norm": "pre", "norm_kind": "rms", "activation": "silu", "gated": True, "ffn_bias": False,
        "sides": {"scheme": "learned", "max_length": 20, "std": 0.5, "offset": 2},
    },
    "learned-projected": {
        "norm": "post", "token_scale": "learned", "embedding_norm": True,
        "sides": {
            "scheme": "learned", "max_length": 10, "std": 0.5, "beyond": "clamp", "combine": "project", "width": 4,
        },
    },
    "rope": {
        "norm": "pre", "num_heads": 4, "num_kv_heads": 2, "head_dim": 4,
        "sides": {"scheme": "rope", "base": 100.0},
    },
    "rope-interleaved": {
        "norm": "pre", "activation": "gelu-tanh",
        "sides": {"scheme": "rope", "layout": "interleaved", "fraction": 0.5, "learned": True, "skip_every": 2},
    },
    "alibi": {"norm": "post", "norm_bias": False, "sides": "alibi", "output_scale": 0.5},
    "alibi-asymmetric": {
        "norm": "pre", "causal_encoder": False, "residual": True, "attention_scale": 0.4,
        "encoder": {"scheme": "alibi", "form": "asymmetric"}, "decoder": {"scheme": "alibi", "learned": True},
    },
    "alibi-broken": {
        "norm": "pre", "encoder": {"scheme": "alibi", "form": "broken"},
        "decoder": {"scheme": "alibi", "form": "two-sided"},
    },
    "t5": {"norm": "pre", "sides": {"scheme": "t5", "num_buckets": 8, "max_distance": 9, "bias_scale": 3.0}},
    "t5-unscaled": {"norm": "pre", "final_norm": False, "sides": {"scheme": "t5", "logit_scale": "none"}},
    "none": {"norm": "pre", "causal_encoder": True, "residual": False, "sides": "none"},
    "index": {
        "norm": "pre", "encoder": {"scheme": "index", "form": "direction", "normalise": "length", "amplitude": 2.0},
        "decoder": {"scheme": "index", "normalise": "maximum", "max_length": 20, "form": "value"},
    },
}  # fmt: skip


CONTINUING: dict[str, dict[str, Any]] = {
    "sinusoidal": {"norm": "pre", "decoder": "sinusoidal"},
    "rope": {"norm": "pre", "num_kv_heads": 1, "decoder": {"scheme": "rope", "base": 100.0}},
}
"""Language models, whose tokens are pairs of bytes."""
BYTES = (
    "Tom bit a dog's  tail; Tom's dog bit 12 cats, Caf\u00e9 \u4f60\u597d\u00a0x \n\n\tend ",
    " a dog bit Tom and it's late",
)


def main(folder: Path) -> None:
    """Write the vectors of every model."""
    (folder / "continuing").mkdir(exist_ok=True)
    for number, name in enumerate(CONTINUING):
        torch.manual_seed(number)
        _write(folder / "continuing" / f"{name}.json", _continue(name))
    tokenizers = train_tokenizers(_corpus(), kind="word")
    for number, (name, table) in enumerate(MODELS.items()):
        torch.manual_seed(number)
        with tempfile.TemporaryDirectory() as place:
            tokenizers.save(place)
            _make_model(table, len(tokenizers.source)).save_pretrained(place)
            vectors = compute_vectors(open_run(place, device="cpu"), name)
        _write(folder / f"{name}.json", vectors)


def _write(path: Path, vectors: dict[str, Any]) -> None:
    path.write_text(json.dumps(vectors, separators=(",", ":")) + "\n", encoding="utf8")


def _continue(name: str) -> dict[str, Any]:
    """Return a random language model with texts, their tokens, its logits, and what it writes greedily."""
    corpus = Corpus("bytes", "language modelling", {"train": list(BYTES)})
    tokenizers = train_tokenizers(corpus, kind="bpe", vocabulary=290)
    table = {**CONTINUING[name], "kind": "decoder", "decoder_layers": 2}
    with tempfile.TemporaryDirectory() as place:
        tokenizers.save(place)
        _make_model(table, len(tokenizers.source), ClockhandsForCausalLM).save_pretrained(place)
        run = open_run(place, device="cpu")
        model = describe_model(run, name, name, "vectors", [], dtype="float32")
        cases = [_continue_text(run, text) for text in BYTES]
    weights = base64.b64encode(model.weights).decode("ascii")
    return {"data": {**model.data, "measured": []}, "weights": weights, "cases": cases}


@torch.no_grad()
def _continue_text(run: Run, text: str) -> dict[str, Any]:
    ids = run.tokenizers.source(text)["input_ids"]
    logits = run.model(input_ids=torch.tensor([ids]), use_cache=False).logits
    written = list(ids)
    while len(written) < len(ids) + MOST:
        best = run.model(input_ids=torch.tensor([written]), use_cache=False).logits[0, -1].argmax()
        written.append(int(best))
        if written[-1] == run.model.config.eos_token_id:
            break
    tokens = written[len(ids) :]
    decoded = run.tokenizers.source.decode(tokens, skip_special_tokens=True)
    return {"text": text, "ids": ids, "logits": _round(logits), "tokens": tokens, "written": decoded}


def _corpus() -> Corpus:
    pairs = [Pair(*pair) for pair in zip(TEXTS, TARGETS, strict=True)]
    return Corpus("vectors", "translation", {"train": pairs})


def _make_model(table: dict[str, Any], vocabulary: int, model_class: Any = ClockhandsForSeq2SeqLM) -> Any:
    """Return a random model whose norms, biases and learned numbers are random too, so that each of them matters."""
    sides = {side: table["sides"] for side in ("encoder", "decoder") if "sides" in table}
    settings = {**SIZES, **{key: value for key, value in table.items() if key != "sides"}, **sides}
    if settings.get("kind") == "decoder":
        del settings["encoder_layers"]
    config = TransformerConfig.from_dict({**settings, "vocab_size": vocabulary})
    model = model_class(
        ClockhandsConfig(
            transformer=config.to_dict(), pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def compute_vectors(run: Run, name: str) -> dict[str, Any]:
    """Return a model with its texts and what PyTorch makes of them."""
    held_out = [Pair(*pair) for pair in zip(TEXTS, TARGETS, strict=True)]
    model = describe_model(run, name, name, "vectors", held_out, dtype="float32")
    real_valued = run.model.model.encoder.schemes[0].declares.real_valued
    cases = [_run_text(run, text, target, None) for text, target in zip(TEXTS, TARGETS, strict=True)]
    length = len(encode_texts(run.tokenizers.source, [TEXTS[0]])[0])
    moved = [0.5 * (length - index) for index in range(length)] if real_valued else list(range(length))[::-1]
    cases.append(_run_text(run, TEXTS[0], TARGETS[0], moved))
    weights = base64.b64encode(model.weights).decode("ascii")
    return {"data": {**model.data, "measured": []}, "weights": weights, "cases": cases}


@torch.no_grad()
def _run_text(run: Run, text: str, target: str, positions: list[float] | None) -> dict[str, Any]:
    """Return the states, logits and translations of one text, its source at the given positions."""
    (ids,), (wanted,) = encode_texts(run.tokenizers.source, [text]), encode_texts(run.tokenizers.target, [target])
    pos_BS = None if positions is None else torch.tensor([positions])
    batch, model = TokenBatch(torch.tensor([ids]), pos=pos_BS), run.model.model
    attended: list[Any] = []
    with record(attended.append):
        source = model.encode(batch)
        states = model.decode(TokenBatch(torch.tensor([[1, *wanted[:-1]]])), source)
    case = {
        "text": text,
        "ids": ids,
        "positions": positions,
        "targetIds": wanted,
        "states": _round(source.states_BTD),
        "logits": _round(model.output(states)),
        "scores": _round(attended[0].logits_BHST.masked_fill(~attended[0].mask_BHST, -1e9).clamp_min(-1e9)),
        "weights": _round(attended[-1].weights_BHST),
    }
    if positions is None:
        case |= _search(run, ids)
    return case


def _search(run: Run, ids: list[int]) -> dict[str, Any]:
    """Return the texts of a greedy search and of a beam of 3, with their log-probabilities."""
    found = {}
    for name, beam in (("greedy", 1), ("beam", 3)):
        engine = Search(beam).make_engine(run)
        (output,) = engine.generate(torch.tensor([ids]), None, MOST, beam)
        found[name] = {"tokens": output.tokens, "logProbability": round(output.log_probability, 5)}
    return found


def _round(tensor: torch.Tensor) -> list[float]:
    return [round(number, 6) for number in tensor.flatten().tolist()]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
