"""Greedy and beam search against ``generate`` of transformers, word for word and score for score."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from clockhands.errors import ConfigError, UsageError
from clockhands.generation.engines import DecodingOptions, clockhands
from clockhands.generation.engines.clockhands import (
    VOCABULARY_BLOCK,
    ClockhandsEngine,
    choose_candidates,
    choose_likeliest,
)
from clockhands.model import make_preset
from clockhands.model.huggingface import ClockhandsConfig, ClockhandsForSeq2SeqLM
from clockhands.schemes import CATALOGUE
from clockhands.schemes.rotary.trained_length import add_trained_length

PAD, START, END = 0, 1, 2
VOCABULARY = 4 * VOCABULARY_BLOCK
LONGEST = 9


def writer(scheme: str | dict[str, object] = "sinusoidal", **changes: object) -> ClockhandsForSeq2SeqLM:
    """A random model that writes as a trained one does: sure of most words, and of different ones.

    An untrained model with tied matrices repeats one word, so that any search looks right. Its output matrix is its
    own and large, and the end is likely enough for texts to end at different lengths.
    """
    torch.manual_seed(3)
    sides = add_trained_length({"encoder": scheme, "decoder": scheme, **changes}, LONGEST, only_needed=True)
    core = make_preset("tiny", {"vocab_size": VOCABULARY, "tying": "none", "output_bias": True, **sides})
    model = ClockhandsForSeq2SeqLM(ClockhandsConfig(
        core.to_dict(), pad_token_id=PAD, bos_token_id=START, eos_token_id=END, decoder_start_token_id=START
    )).eval()  # fmt: skip
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "blocks" in name:
                parameter.mul_(2)
        model.transformer.output.weight.normal_(std=0.7)
        model.transformer.output.bias.zero_()
        model.transformer.output.bias[END] = 11.0
    return model


def sources(rows: int = 4, length: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded sources of different lengths."""
    torch.manual_seed(5)
    ids_BT = torch.randint(3, VOCABULARY, (rows, length))
    lengths_B = torch.linspace(3, length, rows).long()
    mask_BT = torch.arange(length) < lengths_B[:, None]
    return ids_BT.masked_fill(~mask_BT, PAD), mask_BT


def generated(
    model: ClockhandsForSeq2SeqLM,
    ids_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    beam: int,
    cache: bool,
    penalty: float = 1.0,
) -> tuple[list[list[int]], list[float]]:
    """What transformers writes, each text up to its end, and the log-probability of each."""
    result = model.generate(
        input_ids=ids_BT, attention_mask=mask_BT, num_beams=beam, do_sample=False, max_new_tokens=LONGEST,
        use_cache=cache, length_penalty=penalty, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    texts = [row[: row.index(END) + 1] if END in row else row for row in result.sequences[:, 1:].tolist()]
    scores_BS = model.compute_transition_scores(
        result.sequences, result.scores, getattr(result, "beam_indices", None), normalize_logits=beam == 1
    )
    return texts, [float(row[: len(text)].sum()) for row, text in zip(scores_BS, texts, strict=True)]


def side_of_reading(name: str) -> str:
    """The encoder's scheme beside this one in the decoder: the same, unless it is defined for decoders alone."""
    try:
        make_preset("tiny", add_trained_length({"encoder": name}, LONGEST, only_needed=True))
    except ConfigError as fault:
        assert "causal" in str(fault), fault
        return "sinusoidal"
    return name


def compare(model: ClockhandsForSeq2SeqLM, beam: int, cache: bool, penalty: float = 1.0) -> list[list[int]]:
    ids_BT, mask_BT = sources()
    written = ClockhandsEngine(model).generate(ids_BT, mask_BT, DecodingOptions(LONGEST, beam, penalty))
    texts, totals = generated(model, ids_BT, mask_BT, beam, cache, penalty)
    assert [text.tokens for text in written] == texts
    assert [text.log_probability for text in written] == pytest.approx(totals, abs=2e-4)
    return texts


OPTIONS = {"swin": {"scheme": "swin", "rows": 2 * LONGEST}}


# By beams, and every other greedily too: tests/model/test_lean.py compares the steps of all. Both with --exhaustive.
WITH_BEAMS = [
    pytest.param(name, beam, marks=pytest.mark.exhaustive if number % 2 and beam == 1 else ())
    for number, name in enumerate(CATALOGUE)
    for beam in (1, 3)
]


@pytest.mark.parametrize(("name", "beam"), WITH_BEAMS)
def test_every_scheme_writes_what_generate_writes(name: str, beam: int) -> None:
    scheme = OPTIONS.get(name, name)
    compare(writer(scheme, encoder=side_of_reading(name) if scheme == name else scheme), beam, cache=True)


def test_the_texts_compared_are_worth_comparing() -> None:
    texts = compare(writer(), 4, cache=True)
    assert len({token for text in texts for token in text}) >= 8
    assert len({len(text) for text in texts}) > 2


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
def test_length_penalty(penalty: float) -> None:
    compare(writer(), 3, cache=True, penalty=penalty)


@pytest.mark.parametrize("beam", [1, 3])
def test_what_depends_on_the_length_is_read_again(beam: int) -> None:
    compare(writer({"scheme": "index", "normalise": "length", "form": "direction"}), beam, cache=False)


@pytest.mark.parametrize(
    ("changes", "beam"),
    [
        ({"num_kv_heads": 2}, 4),
        ({"decoder": {"scheme": "rope", "skip_every": 2}}, 4),
        ({"decoder": {"scheme": "sinusoidal", "every_layer": True}}, 4),
        ({"cross": "rope"}, 4),
        ({"norm": "post", "norm_kind": "rms", "gated": True}, 4),
        ({"output_transform": True, "output_scale": 0.7}, 4),
        ({"vocab_size": VOCABULARY - 6}, 4),
        ({"vocab_size": VOCABULARY - 6}, 1),
    ],
)
def test_architectures(changes: dict[str, object], beam: int) -> None:
    size = changes.pop("vocab_size", VOCABULARY)
    compare(writer(**changes, source_vocab_size=VOCABULARY, vocab_size=size), beam, cache=True)


def test_a_text_without_end_stops_at_the_longest() -> None:
    model = writer()
    with torch.no_grad():
        model.transformer.output.bias[END] = -1e9
    for beam in (1, 4):
        assert {len(text) for text in compare(model, beam, cache=True)} == {LONGEST}


def test_batched_is_single() -> None:
    engine, (ids_BT, mask_BT) = ClockhandsEngine(writer("rope")), sources()
    for beam in (1, 4):
        together = engine.generate(ids_BT, mask_BT, DecodingOptions(LONGEST, beam))
        for row, one in enumerate(together):
            real = int(mask_BT[row].sum())
            (alone,) = engine.generate(ids_BT[row : row + 1, :real], None, DecodingOptions(LONGEST, beam))
            assert alone.tokens == one.tokens
            assert alone.log_probability == pytest.approx(one.log_probability, abs=2e-4)


@pytest.mark.parametrize("beam", [1, 3])
def test_in_low_precision_the_score_is_the_text_s(beam: int) -> None:
    model, (ids_BT, mask_BT) = writer().bfloat16(), sources(2)
    for row, written in enumerate(ClockhandsEngine(model).generate(ids_BT, mask_BT, DecodingOptions(LONGEST, beam))):
        labels_BS = torch.tensor([written.tokens])
        logits_BSV = model(
            input_ids=ids_BT[row : row + 1], attention_mask=mask_BT[row : row + 1], labels=labels_BS
        ).logits
        expected = -F.cross_entropy(logits_BSV[0].float(), labels_BS[0], reduction="sum")
        assert written.log_probability == pytest.approx(float(expected), rel=0.1, abs=0.3)


@pytest.mark.parametrize("vocabulary", [4 * VOCABULARY_BLOCK, 4 * VOCABULARY_BLOCK - 1, 7])
@pytest.mark.parametrize("count", [1, 6])
def test_the_likeliest_in_two_levels_are_the_likeliest(vocabulary: int, count: int) -> None:
    logits_BWV, total_BW = 5 * torch.randn(3, 2, vocabulary), torch.randn(3, 2)
    total_BC, parent_BC, token_BC = choose_candidates(logits_BWV, total_BW, count)
    whole_BN = (torch.log_softmax(logits_BWV, -1) + total_BW[..., None]).flatten(1)
    assert torch.equal(total_BC, whole_BN.sort(descending=True).values[:, :count])
    assert torch.equal(whole_BN.gather(1, parent_BC * vocabulary + token_BC), total_BC)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("vocabulary", [4 * VOCABULARY_BLOCK, 4 * VOCABULARY_BLOCK - 1])
def test_the_best_token_is_the_first_of_the_largest(vocabulary: int, rows: int) -> None:
    logits_NV = torch.randint(0, 4, (rows, vocabulary)).float()
    expected_N, exact_NV = logits_NV.argmax(-1), logits_NV.double().log_softmax(-1)
    token_N, log_p_N = choose_likeliest(logits_NV.clone())
    assert torch.equal(token_N, expected_N)
    torch.testing.assert_close(log_p_N.double(), exact_NV.amax(-1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("beam", [1, 3])
def test_logits_of_a_few_rows_at_a_time(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, (ids_BT, mask_BT) = ClockhandsEngine(writer()), sources(5)
    together = engine.generate(ids_BT, mask_BT, DecodingOptions(LONGEST, beam))
    monkeypatch.setattr(clockhands, "LOGIT_ROWS", 2 * beam)
    for one, other in zip(engine.generate(ids_BT, mask_BT, DecodingOptions(LONGEST, beam)), together, strict=True):
        assert one.tokens == other.tokens
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_the_compute_type_is_that_of_the_weights() -> None:
    assert ClockhandsEngine(writer()).compute_type == "float32"
    assert ClockhandsEngine(writer().bfloat16()).compute_type == "bfloat16"
    assert ClockhandsEngine(writer().bfloat16(), "bfloat16").compute_type == "bfloat16"
    with pytest.raises(UsageError, match=r"compute_type is 'float32', but .* the weights of this model are bfloat16;"):
        ClockhandsEngine(writer().bfloat16(), "float32")
