"""Position tables are found by what editing them does: in every family that has one, and not where there is none."""

from __future__ import annotations

import operator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModel

from clockhands.checking.models.tiny import build_model, find, make_position_audible, tiny_config
from clockhands.models.door import open_subject
from clockhands.models.input_table import InputTable, find_input_table, is_position_at_input
from clockhands.models.subject import Subject
from tests.inspection.tiny import CONFIGS, draw_ids, tiny

FIRST = {
    "big_bird:masked": 0, "biogpt:causal": 2, "ctrl:causal": 0, "data2vec-text:masked": 2, "fsmt:seq2seq": 2,
    "gpt_bigcode:causal": 0, "longformer:masked": 2, "m2m_100:seq2seq": 2, "mbart:seq2seq": 2,
    "megatron-bert:masked": 0, "nystromformer:masked": 2, "openai-gpt:causal": 0, "opt:causal": 2,
    "prophetnet:seq2seq": 1, "roberta:masked": 2, "xlm:masked": 0,
}  # fmt: skip
"""The row of the first token, as the code of each family has it: 2 in BART's and OPT's tables (an offset that their
classes add) and in Nystromformer's, ``padding_idx + 1`` in those after fairseq, 0 elsewhere."""
MORE = {
    "rembert:masked": 0, "pegasus:seq2seq": 0, "luke:masked": 2, "layoutlm:masked": 0, "ibert:masked": 2,
    "flaubert:masked": 0, "ernie:masked": 0, "blenderbot:seq2seq": 0, "bert-generation:causal": 0,
    "blenderbot-small:seq2seq": 0, "convbert:masked": 0, "esm+learned:masked": 2, "mvp:seq2seq": 2,
    "nllb-moe:seq2seq": 2, "plbart:seq2seq": 2, "roberta-prelayernorm:masked": 2, "roc_bert:masked": 0,
    "xglm:causal": 2, "xlm-roberta-xl:masked": 2, "xmod:masked": 2,
}  # fmt: skip


def _tiny(name: str) -> Any:
    (build,) = [build for build in find(name.partition(":")[0]) if build.name == name]
    torch.manual_seed(0)
    return make_position_audible(AutoModel.from_config(tiny_config(build)).eval())


def _stack(model: Any) -> Any:
    return model.get_encoder() if model.config.is_encoder_decoder else model


def _entering(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """The embedding output, straight from transformers."""
    with torch.no_grad():
        return _stack(model)(input_ids=ids, output_hidden_states=True, return_dict=True).hidden_states[0]


@pytest.mark.parametrize(
    ("name", "first"), [*FIRST.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in MORE.items())]
)
def test_a_row_of_the_table_that_is_found_reaches_its_token_alone(name: str, first: int) -> None:
    model = _tiny(name)
    subject = Subject.of(model)
    assert subject.table is not None
    assert subject.table.first_row == first
    assert subject.max_length == len(operator.attrgetter(subject.table.path)(_stack(model)).squeeze(0)) - first
    ids = torch.randint(100, 150, (3, 24), generator=torch.Generator().manual_seed(1))
    before = _entering(model, ids)
    rows = operator.attrgetter(subject.table.path)(_stack(model)).data
    for place in (0, 9, 23):
        kept = rows.clone()
        rows[..., first + place, :] += torch.linspace(-1, 1, rows.shape[-1])
        changed = (_entering(model, ids) != before).any(-1)
        rows.copy_(kept)
        assert changed.nonzero()[:, 1].tolist() == [place] * 3
    _check_the_sum(subject, ids)


def _check_the_sum(subject: Subject, ids: torch.Tensor, tolerance: float = 1e-4) -> None:
    """Token vector + position row + segment is what the first norm, or the first layer, is given."""
    tables = subject.read_tables()
    assert tables is not None
    expected = tables.tokens_VD[ids] + tables.positions_ND[: ids.shape[1]] + tables.segment_D
    if tables.norm is None:
        torch.testing.assert_close(subject.forward(ids)[0], expected, atol=tolerance, rtol=tolerance)
        return
    entering: list[torch.Tensor] = []
    hook = tables.norm.register_forward_pre_hook(lambda module, args: entering.append(args[0]))
    subject.forward(ids)
    hook.remove()
    torch.testing.assert_close(entering[0][:, : ids.shape[1]], expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_tables_of_every_listed_family_are_where_the_data_says(name: str) -> None:
    subject = Subject.of(tiny(name))
    assert subject.mechanisms, "every family listed has a mechanism"
    if subject.read_tables() is None:
        assert not {"learned", "sinusoid"} & set(subject.mechanisms)
    else:
        _check_the_sum(subject, draw_ids(5), 1e-5)


def test_the_factor_of_the_words_is_measured() -> None:
    for name, factor in {"ctrl:causal": 8.0, "pegasus:seq2seq": 1.0, "m2m_100:seq2seq": 8.0}.items():
        table = Subject.of(_tiny(name)).table
        assert table is not None
        assert table.scale == pytest.approx(factor, rel=1e-4)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_in_a_model_of_half_precision_the_table_is_read_to_float32(kind: torch.dtype) -> None:
    subject = Subject.of(_tiny("ctrl:causal").to(kind)).to_float32()
    assert subject.table is not None
    assert (subject.table.first_row, subject.mechanisms) == (0, ("sinusoid",))
    assert subject.table.scale == pytest.approx(8.0, rel=1e-4)


def test_words_that_are_projected_before_positions_are_added_are_read_from_the_model() -> None:
    """OPT-350m: rows of another width than the model's."""
    (build,) = find("opt")
    config = tiny_config(build)
    config.word_embed_proj_dim = 32
    torch.manual_seed(0)
    model: Any = make_position_audible(AutoModel.from_config(config).eval())
    subject = Subject.of(model)
    assert subject.table is not None
    assert subject.table.token_vectors == "read"
    tables = subject.read_tables()
    assert tables is not None
    torch.testing.assert_close(tables.tokens_VD, model.decoder.project_in(model.decoder.embed_tokens.weight).detach())


def test_a_decoder_that_is_saved_alone_has_its_table(tmp_path: Path) -> None:
    """BartForCausalLM wraps its decoder in a class that gives no embeddings."""
    (build,) = [build for build in find("bart") if build.task == "causal"]
    build_model(tiny_config(build), "causal").save_pretrained(tmp_path)
    subject = open_subject(tmp_path)
    assert subject.table is not None
    assert (subject.table.first_row, subject.class_name) == (2, "BartDecoder")


def test_where_neighbours_are_mixed_no_token_has_a_vector() -> None:
    subject = Subject.of(_tiny("mobilebert:masked"))
    assert subject.table is not None
    assert subject.table.token_vectors == "mixed"
    assert subject.read_tables() is None
    assert "mixes neighbouring tokens" in subject.explain_missing_table("")


class Planted(nn.Module):
    """Tokens and positions added as asked, beside tables that are none."""

    def __init__(self, kind: str, first: int = 0, factor: float = 1.0) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.segments = nn.Embedding(40, 12)
        self.unused = nn.Parameter(torch.randn(40, 12))
        self.mix = nn.Linear(12, 40)
        self.kind, self.first, self.factor = kind, first, factor
        rows = torch.randn(1, 40, 12)
        if kind == "parameter":
            self.rows = nn.Parameter(rows)
        elif kind == "buffer":
            self.register_buffer("rows", rows[0])
        else:
            self.rows = nn.Embedding.from_pretrained(rows[0])
        self.block = nn.LayerNorm(12)

    def positions(self, length: int) -> torch.Tensor:
        places = torch.arange(self.first, self.first + length)
        if self.kind == "reversed":
            places = places.flip(0)
        if self.kind == "neighbours":
            return self.rows(places) + self.rows(places + 1)
        if self.kind == "squared":
            return self.rows(places).square()
        table: Any = self.rows
        return table(places) if isinstance(table, nn.Embedding) else table.reshape(40, 12)[places]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = 3 * self.words(ids) + self.segments(torch.zeros_like(ids))
        if self.kind != "none":
            x = x + self.factor * self.positions(ids.shape[1])
        self.block(x)
        return x


def _found(model: Planted) -> InputTable | None:
    ids = torch.arange(8)
    with torch.no_grad():
        return find_input_table(model, lambda x: (model(x),), torch.stack([ids, ids.roll(1)]), model.words.weight)


@pytest.mark.parametrize(("kind", "path"), [("embedding", "rows.weight"), ("parameter", "rows"), ("buffer", "rows")])
@pytest.mark.parametrize(("first", "factor"), [(0, 1.0), (5, 0.25), (32, -2.0)])
def test_what_was_planted_is_found(kind: str, path: str, first: int, factor: float) -> None:
    model = Planted(kind, first, factor)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = _found(model)
    assert found is not None
    assert (found.path, found.first_row, found.module_path, found.norm_path, found.token_vectors) == (
        path, first, "block", "", "rows",
    )  # fmt: skip
    assert (found.factor, found.scale) == (pytest.approx(factor, rel=1e-5), pytest.approx(3.0, rel=1e-5))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("kind", ["none", "reversed", "neighbours", "squared"])
def test_what_is_not_one_row_added_to_each_token_is_no_table(kind: str) -> None:
    model = Planted(kind)
    assert _found(model) is None
    assert is_position_at_input(lambda ids: (model(ids).detach(),), 3) == (kind != "none")


def test_a_model_that_is_not_listed_tells_a_sinusoid_from_a_learned_table() -> None:
    model = AutoModel.from_config(_tiny("m2m_100:seq2seq").config).eval()
    assert Subject.of(model).mechanisms == ("sinusoid",)
    assert Subject.of(_tiny("biogpt:causal")).mechanisms == ("learned",)


def test_a_table_is_not_looked_for_row_by_row_where_nothing_at_the_input_depends_on_place() -> None:
    """One run tells it for all matrices together: a model of many experts has hundreds."""
    model, runs = Planted("none"), SimpleNamespace(count=0)

    def forward(ids: torch.Tensor) -> tuple[torch.Tensor]:
        runs.count += 1
        return (ids[..., None].float().expand(-1, -1, 12),)

    ids = torch.arange(8)
    assert find_input_table(model, forward, torch.stack([ids, ids.roll(1)]), None) is None
    assert runs.count == 2
