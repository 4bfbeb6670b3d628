"""Recipes: every fault at once with the nearest name, settings typed by their fields, and a file that reads back."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clockhands.errors import ConfigError, DataError, Fault
from clockhands.model.config import TransformerConfig
from clockhands.options import fits
from clockhands.runs.recipe import make_recipe
from clockhands.runs.recipe.tables import find_keys
from clockhands.training import Recipe, load_recipe, vary_recipe
from tests.training.tiny import TABLES

REPOSITORY = Path(__file__).resolve().parents[3]
# Plans of `compare` lie there too; they name a recipe instead of being one.
RECIPES = sorted(path for path in (REPOSITORY / "recipes").glob("*.toml") if "\n[data]" in path.read_text("utf8"))
NUMBERS: dict[str, Any] = {"data": {"corpus": "numbers"}, "model": {"preset": "tiny"}, "training": {"max_steps": 9}}
NAMED: dict[str, Any] = {"data": {"corpus": "numbers"}, "training": {"max_steps": 9}}


def faults(tables: dict[str, Any], settings: dict[str, Any] | None = None, *, written: bool = False) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        make_recipe(tables, settings or {}, written=written)
    return caught.value.faults


def test_all_faults_are_reported_together_with_the_nearest_names() -> None:
    wrong = {
        "data": {"corpus": "numbers", "trian": 1}, "model": {"d_modle": 3, "num_heads": 7, "norm": "both"},
        "position": {"scheme": "ropee"}, "training": {"max_step": 3, "max_steps": 0, "clip": "x"}, "positoin": {},
    }  # fmt: skip
    assert set(faults(wrong)) == {
        "unknown table 'positoin'; did you mean 'position'?",
        "unknown key in [data] 'trian'; did you mean 'train'?",
        "unknown key in [model] 'd_modle'; did you mean 'd_model'?",
        "model.norm is 'both', but must be one of 'post', 'pre', 'output', 'sandwich'",
        "num_heads is 7, which does not divide d_model 512; take 8, or set head_dim",
        "position.scheme: unknown scheme 'ropee'; did you mean 'rope'?",
        "unknown key in [training] 'max_step'; did you mean 'max_steps'?",
        "training.max_steps is 0, but must be at least 1",
        "training.clip is 'x', but must be a number",
    }


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ({"data": {"corpus": "nubmers"}}, "unknown corpus 'nubmers'; did you mean 'numbers'?"),
        ({}, "data.corpus is missing; choose one of"),
        ({"data": {"corpus": "parallel", "source": "x"}}, "data.target is missing"),
        ({"position": {"scheme": "sinusoidal", "bse": 3}}, "unknown key in [position] 'bse'; did you mean 'base'?"),
        ({"model": {"preset": "tniy"}}, "unknown preset 'tniy'; did you mean 'tiny'?"),
        ({"model": {"d_model": 15, "num_heads": 3}}, "needs an even width; width is 15"),
        ({"position": {"combine": "concatenate", "width": 512}}, "d_p must leave channels to the tokens"),
        ({"position": {"combine": "project"}}, "position.combine is 'project' and needs position.width, the d_p"),
        ({"position": {"encoder": {"width": 4}}}, "position.encoder.width is 4, but combine = 'add' takes no width"),
        ({"model": {"kind": "decoder"}}, "model.kind is 'decoder', which reads documents, and corpus"),
        ({"data": {"corpus": "stdlib"}, "position": {"cross": {"scheme": "rope"}}}, "model.kind is 'decoder'"),
        ({"batches": {"size": 0}}, "batches.size is 0, but must be at least 1"),
        ({"batches": {"masked": 1.5}}, "batches.masked is 1.5, but must be above 0 and below 1"),
        ({"tokenizer": {"name": "x", "kind": "word"}}, "tokenizer.kind is for a tokenizer learned here"),
        ({"tokenizer": {"kind": "morpheme", "vocabulary": 9}}, "tokenizer.vocabulary is for a tokenizer that is"),
        ({"data": {"corpus": "roles"}, "tokenizer": {"kind": "morpheme"}},
         "tokenizer.kind is 'morpheme', and corpus 'roles' has no list of morphemes"),
        ({"training": {"max_steps": 1, "epochs": 2}}, "both say how long; give one of them"),
        ({"training": {"max_steps": 1, "final_rate": 1e-5}}, "training.final_rate is of the schedule 'cosine' alone"),
        ({"training": {"max_steps": 1, "average": "last"}}, "training.average needs checkpoints"),
        ({"training": {"max_steps": 1, "beta2": 1.0}}, "training.beta2 is 1.0, but must be from 0 to below 1"),
        ({"training": {"max_steps": 1, "report_to": ["wandbee"]}}, "but must be a list of one of 'tensorboard'"),
        ({"data": {"corpus": ["numbers"]}}, "data.corpus is ['numbers'], but must be the name of a corpus"),
        ({"position": {"scheme": [1]}}, "position.scheme is [1], but must be the name of a scheme"),
        ({"position": {"encoder": [1]}}, "position.encoder is [1], but must be the name of a scheme or a table"),
        ({"position": {"encoder": {"scheme": {}}}}, "position.encoder.scheme is {}, but must be the name of a scheme"),
        ({"model": {"preset": ["tiny"]}}, "unknown preset"),
        ({"position": "rope"}, "[position] is 'rope', but must be a table"),
        ({"training": [1]}, "[training] is [1], but must be a table"),
        ({"data": {"corpus": "parallel", "source": 3, "target": "x"}}, "data.source is 3, but must be text or a path"),
        ({"data": {"corpus": "text", "train": "a\0b"}}, "a\\x00b', but must be text in Unicode"),
        ({"training": {"max_steps": 1, "begin_from": 3}}, "begin_from is 3, but must be text or a path or none"),
        ({"tokenizer": {"vocabulary": -3}}, "tokenizer.vocabulary is -3, but must be from 1 to"),
        ({"tokenizer": {"vocabulary": 10**11}}, "tokenizer.vocabulary is 100000000000, but must be from 1 to"),
        ({"tokenizer": {"min_frequency": 0}}, "tokenizer.min_frequency is 0, but must be from 1 to"),
        ({"training": {"max_steps": 10**23}}, "but must be a whole number of at most 64 bits"),
        ({"training": {"max_steps": 1, "seed": 2**32}}, "is 4294967296, but must be from 0 to 4,294,967,295"),
        ({"data": {"corpus": "roles", "seed": -1}}, "data.seed is -1, but must be from 0 to 4,294,967,295"),
        ({"position": {"scheme": "RoPE"}}, "unknown scheme 'RoPE'; did you mean 'rope'?"),
    ],
)  # fmt: skip
def test_each_fault_has_its_sentence(tables: dict[str, Any], fault: str) -> None:
    base = {"data": {"corpus": "numbers"}, "training": {"max_steps": 9}} if tables else {}
    found = faults({**base, **tables})
    assert any(fault in sentence for sentence in found), found


def test_settings_and_file_are_judged_together() -> None:
    settings = {"training.max_step": "3", "positio.scheme": "rope", "max_steps": "4", "position.base": "x"}
    found = faults({"data": {"corpus": "numbers"}, "training": {"max_stps": 1}}, settings, written=True)
    assert set(found) == {
        "cannot set 'training.max_step': unknown key in [training] 'max_step'; did you mean 'max_steps'?",
        "cannot set 'positio.scheme': unknown table 'positio'; did you mean 'position'?",
        "cannot set 'max_steps': write the table before the key, as in training.max_steps "
        "(data, tokenizer, model, position, batches, training)",
        "unknown key in [training] 'max_stps'; did you mean 'max_steps'?",
        "position.base is 'x', but must be a number",
    }


def test_written_settings_take_their_type_from_the_field() -> None:
    settings = {
        "position.base": "500", "position.scheme": "rope", "model.dropout": "0", "training.compile": "True",
        "training.report_to": "tensorboard", "training.eval_steps": "none", "data.source": "fr",
        "tokenizer.name": "none",
    }  # fmt: skip
    recipe = make_recipe(NUMBERS, settings, written=True)
    assert (recipe.model.encoder.scheme, recipe.model.encoder.options["base"]) == ("rope", 500.0)
    assert (recipe.model.dropout, recipe.training.compile, recipe.training.report_to) == (0.0, True, ("tensorboard",))
    assert (recipe.training.eval_steps, recipe.corpus_options["source"], recipe.tokenizer.name) == (None, "fr", None)


def test_a_text_field_keeps_text_that_looks_like_a_number(tmp_path: Path) -> None:
    settings = {"data.corpus": "parallel", "data.source": "2024", "data.target": str(tmp_path / "1e3")}
    options = make_recipe(NUMBERS, settings, written=True).corpus_options
    assert options["source"] == str(Path.cwd() / "2024")
    assert options["target"] == str(tmp_path / "1e3")


def test_paths_in_a_file_are_relative_to_the_file_and_settings_to_the_working_folder(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[data]\ncorpus="parallel"\nsource="a.de"\ntarget=["b.en", "/c.en"]\n[training]\nmax_steps=1\n')
    options = load_recipe(file, {"data.test_source": "t", "data.test_target": "u"}).corpus_options
    assert options["source"] == str(tmp_path / "a.de")
    assert options["target"] == [str(tmp_path / "b.en"), "/c.en"]
    assert options["test_source"] == str(Path.cwd() / "t")


def test_another_scheme_drops_the_options_of_the_former_and_keeps_how_it_enters() -> None:
    tables = {**NUMBERS, "position": {"scheme": "sinusoidal", "layout": "half", "combine": "project", "width": 8}}
    recipe = Recipe.from_tables(tables)
    other = vary_recipe(recipe, {"position.scheme": "none", "position.combine": "add", "position.width": None})
    assert other.model.encoder.scheme == other.model.decoder.scheme == "none"
    back = vary_recipe(other, {"position.scheme": "sinusoidal"})
    assert back.model.encoder.options["layout"] == "interleaved"
    assert vary_recipe(recipe, {"position.base": 50.0}).model.encoder.options["layout"] == "half"
    assert recipe == Recipe.from_tables(tables), "varying must not touch the recipe itself"


def test_one_side_may_differ_and_the_other_follows_the_common_table() -> None:
    recipe = vary_recipe(Recipe.from_tables(NUMBERS), {"position.scheme": "rope", "position.encoder.scheme": "alibi"})
    assert [recipe.model.get_position_config(side).scheme for side in ("encoder", "decoder", "cross")] == [
        "alibi",
        "rope",
        "none",
    ]
    assert vary_recipe(recipe, {"position.cross.scheme": "rope"}).model.cross.scheme == "rope"
    only_base = vary_recipe(Recipe.from_tables(NUMBERS), {"position.encoder.base": 7.0}).model
    assert (only_base.encoder.options["base"], only_base.decoder.options["base"]) == (7.0, 10_000.0)


def test_setting_one_of_two_ways_to_say_the_same_takes_the_other_away() -> None:
    recipe = vary_recipe(Recipe.from_tables(NUMBERS), {"batches.tokens": 512, "training.epochs": 2})
    assert (recipe.batches.tokens, recipe.batches.size) == (512, None)
    assert (recipe.training.epochs, recipe.training.max_steps) == (2.0, None)


@pytest.mark.parametrize("order", [1, -1])
def test_setting_two_ways_to_say_the_same_is_refused_as_in_a_file(order: int) -> None:
    both = dict([("training.max_steps", "5"), ("training.epochs", "2")][::order])
    said = "training.max_steps and training.epochs both say how long; give one of them"
    assert faults(NUMBERS, both, written=True) == (said,)
    recipe = make_recipe(NUMBERS, {**both, "training.max_steps": "none"}, written=True)
    assert (recipe.training.epochs, recipe.training.max_steps) == (2.0, None)
    assert make_recipe(NUMBERS, {"training.epochs": None}).training.max_steps == 9


def test_only_a_side_may_be_written_as_the_name_of_its_scheme() -> None:
    tables = {**NUMBERS, "position": {"scheme": "rope", "transform_options": "x"}, "batches": {"siz": 3}}
    assert set(faults(tables, {"position.transform_options.scale": 2})) == {
        "cannot set 'position.transform_options.scale': position.transform_options is 'x', and must be a table",
        "position.transform_options is 'x', but must be a table",
        "unknown key in [batches] 'siz'; did you mean 'size'?",
    }
    sides = {**NUMBERS, "position": {"scheme": "rope", "encoder": "t5"}}
    one_side = make_recipe(sides, {"position.encoder.num_buckets": 8})
    assert (one_side.model.encoder.scheme, one_side.model.encoder.options["num_buckets"]) == ("t5", 8)


def test_the_preset_gives_the_position_where_the_recipe_names_none() -> None:
    recipe = make_recipe(NUMBERS, {"model.preset": "tutorial", "model.d_ff": 256})
    assert (recipe.model.head_dim, recipe.model.d_ff, recipe.model.encoder.options["layout"]) == (128, 256, "half")


@pytest.mark.parametrize(
    ("table", "kind"),
    [({}, "morpheme"), ({"shared": False}, "morpheme"), ({"vocabulary": 400}, "bpe"), ({"kind": "word"}, "word")],
)
def test_the_corpus_gives_the_tokenizer_where_the_recipe_asks_for_none(table: dict[str, Any], kind: str) -> None:
    assert Recipe.from_tables({**NUMBERS, "tokenizer": table}).tokenizer.kind == kind
    assert Recipe.from_tables({**NUMBERS, "data": {"corpus": "roles"}}).tokenizer.kind == "bpe"


def test_what_the_corpus_says_of_the_tokenizer_ends_with_another_corpus_or_tokenizer() -> None:
    recipe = Recipe.from_tables(NUMBERS)
    assert vary_recipe(recipe, {"training.seed": 3}).tokenizer.kind == "morpheme"
    assert vary_recipe(recipe, {"data.corpus": "roles"}).tokenizer.kind == "bpe"
    assert vary_recipe(recipe, {"tokenizer.vocabulary": 300}).tokenizer.vocabulary == 300
    assert vary_recipe(recipe, {"tokenizer.name": "gpt2"}).tokenizer.name == "gpt2"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_of_the_project_reads_and_its_resolved_form_reads_back(path: Path) -> None:
    own = {"parallel": {"data.source": "a", "data.target": "b"}, "text": {"data.train": "a"}}
    corpus = tomllib.loads(path.read_text("utf8"))["data"]["corpus"]
    recipe = load_recipe(path, own.get(corpus, {}))
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml())) == recipe


@settings(max_examples=50)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "training.learning_rate": st.floats(1e-6, 1.0),
            "training.seed": st.integers(0, 2**31),
            "model.dropout": st.floats(0, 0.99),
            "model.norm": st.sampled_from(["pre", "post"]),
            "position.scheme": st.sampled_from(["none", "rope", "alibi", "sinusoidal"]),
            "batches.tokens": st.integers(1, 10**6),
            "data.corpus": st.sampled_from(["numbers", "roles"]),
            "tokenizer.name": st.text(st.characters(codec="utf8", exclude_categories=["Cc", "Cs"]), min_size=1),
        },
    )
)
def test_a_varied_recipe_survives_its_file(changes: dict[str, Any]) -> None:
    recipe = vary_recipe(Recipe.from_tables(NUMBERS), changes)
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml())) == recipe


def test_a_none_that_is_not_the_default_survives_the_file() -> None:
    tables = {
        "data": {"corpus": "huggingface", "dataset": "some/set", "validation": "none"},
        "training": {"max_steps": 1},
    }
    recipe = Recipe.from_tables(tables)
    assert recipe.corpus_options["validation"] is None
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml())) == recipe


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read the recipe"), (b"[data", "is not TOML"), (b"\xffno", "it is not UTF-8")],
)
def test_a_file_that_is_no_recipe_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "broken.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_recipe(path)
    assert str(path) in str(caught.value)


def test_a_key_outside_any_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "stray.toml"
    path.write_text('corpus = "numbers"\n')
    with pytest.raises(ConfigError, match="corpus stands outside any table"):
        load_recipe(path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_every_number_of_a_recipe_is_finite(value: float) -> None:
    tables = {"data": {"corpus": "roles"}, "model": {}, "position": {"scheme": "rope"}}
    tables |= {"batches": {}, "training": {"max_steps": 1}, "tokenizer": {}}
    tried = 0
    for table in tables:
        for key, option in find_keys(tables, table).items():
            if fits(0.5, option.type):
                found = faults({**tables, table: {**tables[table], key: value}})
                assert found == (f"{table}.{key} is {value}, but must be a finite number",)
                tried += 1
    assert tried > 15


def test_a_whole_number_may_be_written_with_an_exponent() -> None:
    settings = {"training.max_steps": "1e3", "batches.size": "2.0"}
    recipe = make_recipe({"data": {"corpus": "numbers"}}, settings, written=True)
    assert (recipe.training.max_steps, recipe.batches.size) == (1000, 2)
    assert type(recipe.training.max_steps) is int
    found = faults({"data": {"corpus": "numbers"}}, {"training.max_steps": "1.5"}, written=True)
    assert found == ("training.max_steps is 1.5, but must be a whole number or none",)


@pytest.mark.parametrize(
    ("tables", "settings", "expected"),
    [
        # The table of the data is wrong: nothing is known of the model's kind, and nothing is said of it.
        ({"data": {"corpus": "txt"}, "model": {"kind": "decoder"}}, {}, {"unknown corpus 'txt'"}),
        ({"data": {"corpus": "table", "train": "x", "text": 5}, "model": {"kind": "decoder"}}, {}, {"data.text is 5"}),
        ({"data": {"corpus": "txt"}, "position": {"scheme": "cope"}}, {}, {"unknown corpus 'txt'"}),
        # A default in the place of a value that is wrong by itself does not fit the others.
        ({"model": {"d_model": "12", "num_heads": 7}}, {}, {"model.d_model is '12'"}),
        ({"model": {"preset": "tinny", "d_model": 12}}, {}, {"unknown preset 'tinny'"}),
        ({"model": {"d_model": 15, "num_heads": 3}, "position": {"scheme": "ropee"}}, {}, {"position.scheme: unknown"}),
        # Options of a scheme or a corpus whose name is wrong are not unknown: they were never looked up.
        ({}, {"position.scheme": "Roppe", "position.base": "500"}, {"position.scheme: unknown scheme 'Roppe'"}),
        ({}, {"data.corpus": "stdlb", "data.limit": "5"}, {"unknown corpus 'stdlb'"}),
    ],
)  # fmt: skip
def test_a_fault_is_told_only_where_it_is(tables: dict[str, Any], settings: dict[str, str], expected: set[str]) -> None:
    found = faults({"data": {"corpus": "numbers"}, "training": {"max_steps": 9}, **tables}, settings, written=True)
    assert len(found) == len(expected)
    assert all(any(sentence.startswith(start) for sentence in found) for start in expected), found


def test_a_recipe_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('\ufeff[data]\ncorpus = "numbers"\n[training]\nmax_steps = 3\n', encoding="utf8")
    assert load_recipe(path).training.max_steps == 3


def test_a_new_training_gives_a_spectrum_its_trained_length() -> None:
    """The window of a language model, ``max_length`` of pairs; the run records it, and a number that is given stays."""
    yarn = {"scheme": "rope", "spectrum": "yarn", "factor": 4.0}
    texts = {**TABLES, "model": {"preset": "tiny", "kind": "decoder"}, "position": yarn, "batches": {"window": 65}}
    texts["data"] = {"corpus": "text", "train": "a.txt"}
    recipe = make_recipe(texts, {})
    assert recipe.trained_length == recipe.model.decoder.options["original_length"] == 65
    assert tomllib.loads(recipe.to_toml())["position"]["original_length"] == 65
    assert make_recipe(texts, {"batches.window": 33}).model.decoder.options["original_length"] == 33
    assert make_recipe(texts, {"position.original_length": 9}).model.decoder.options["original_length"] == 9
    without_text = {**texts, "data": {"corpus": "text"}}
    assert not any("original_length" in fault for fault in faults(without_text)), "the missing text is the only fault"
    pairs = {**NUMBERS, "position": yarn}
    assert make_recipe(pairs, {"batches.max_length": 40}).model.encoder.options["original_length"] == 40
    assert any("rope.original_length is not given" in fault for fault in faults(pairs))
    begun = {**texts, "training": {**TABLES["training"], "begin_from": "elsewhere"}}
    assert any("rope.original_length is not given" in fault for fault in faults(begun))


def test_a_new_training_gives_each_scheme_that_asks_its_trained_length() -> None:
    """A scheme, one of a side, of a layer and of a composition; a window of the user's is compared with the length."""
    texts = {**TABLES, "model": {"preset": "tiny", "kind": "decoder"}, "batches": {"window": 200}}
    texts["data"] = {"corpus": "text", "train": "a.txt"}

    def build(position: dict[str, Any]) -> Any:
        return make_recipe({**texts, "position": position}, {}).model.build_schemes("decoder").at_input

    assert build({"scheme": "fope"}).original_length == 200
    assert (build({"scheme": "dual-chunk"}).length, build({"scheme": "dual-chunk"}).chunk) == (200, 150)
    assert build({"scheme": "rerope"}).window == 100 and build({"scheme": "self-extend"}).window == 50
    assert build({"scheme": "rerope", "window": 199}).window == 199
    assert build({"scheme": "fope", "original_length": 512}).original_length == 512
    assert build({"scheme": "sinusoidal", "decoder": "fope"}).original_length == 200
    assert build({"schemes": ["rerope", "ssmax"]}).parts[0].window == 100
    layers = make_recipe({**texts, "position": {"layers": ["rerope", "..."]}}, {}).model.decoder.layers
    assert layers == [{"scheme": "rerope", "original_length": 200}, "..."]
    recipe = make_recipe({**texts, "position": {"scheme": "rerope"}}, {})
    written = tomllib.loads(recipe.to_toml())["position"]
    assert written["original_length"] == 200 and "window" not in written
    assert make_recipe(tomllib.loads(recipe.to_toml()), {}, source="recipe.toml") == recipe
    for scheme in ("rerope", "self-extend"):
        told = faults({**texts, "position": {"scheme": scheme, "window": 200}})
        assert any(f"{scheme}.window is 200, but must be below the trained length" in fault for fault in told)
    varied = vary_recipe(recipe, {"position.scheme": "self-extend"})
    assert varied.model.build_schemes("decoder").at_input.window == 50
    for scheme in ("fope", "dual-chunk", "rerope", "self-extend"):
        told = faults({**NUMBERS, "position": {"scheme": scheme}})
        assert any(f"{scheme}." in fault and "is not given" in fault for fault in told)


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"num_heads": "x", "d_model": 12}, "num_heads"),
        ({"head_dim": "x", "num_heads": 7}, "head_dim"),
        ({"num_kv_heads": 3, "num_heads": "x"}, "num_heads"),
        ({"norm": "x", "parallel": True, "kind": "decoder"}, "norm"),
        ({"kind": "x", "parallel": True, "norm": "pre"}, "kind"),
    ],
)
def test_a_value_that_is_wrong_by_itself_is_the_only_fault(model: dict[str, Any], key: str) -> None:
    data = {"data": {"corpus": "stdlib"}} if model.get("kind") == "decoder" else {}
    (fault,) = faults({**NAMED, "model": model, **data})
    assert fault.startswith(f"model.{key} is 'x', but must be")


def test_faults_that_do_not_follow_from_each_other_are_all_reported() -> None:
    position = {"combine": "concatenate", "width": 600}
    found = faults({**NAMED, "model": {"dropout": 7.0, "activation": "x"}, "position": position})
    assert set(found) == {
        "model.dropout is 7.0, but must be from 0 to below 1",
        "model.activation is 'x', but must be one of 'relu', 'gelu', 'gelu-tanh', 'silu', 'clamped-silu', 'identity'",
        "position.width (d_p) is 600, but d_model is 512; d_p must leave channels to the tokens",
    }


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ({"d_model": 10, "num_heads": 4}, {"d_model", "num_heads", "head_dim"}),
        ({"num_heads": 8, "num_kv_heads": 3}, {"num_kv_heads", "num_heads"}),
        ({"kind": "decoder", "parallel": True}, {"parallel", "norm"}),
        ({"norm": "pre", "parallel": True}, {"parallel", "kind"}),
        ({"source_vocab_size": 9}, {"tying", "kind", "vocab_size", "source_vocab_size"}),
        ({"kind": "decoder", "decoder": {"scheme": "sinusoidal", "combine": "concatenate", "width": 8}},
         {"tying", "kind", "d_model"}),
    ],
)  # fmt: skip
def test_a_fault_between_fields_names_every_field_that_could_mend_it(table: dict[str, Any], keys: set[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerConfig.from_dict(table)
    (fault,) = [fault for fault in caught.value.faults if isinstance(fault, Fault)]
    assert set(fault.keys) == keys


@pytest.mark.parametrize(
    "position",
    [
        {"scheme": "rope + window(left=5)"}, {"decoder": "rope + window(left=5)"},
        {"decoder": {"layers": ["rope + window(left=5)"]}},
    ],
)  # fmt: skip
def test_what_is_printed_of_schemes_is_understood(position: dict[str, Any]) -> None:
    """The name of what was read is what was written, but for the options."""
    overrides = {f"position.{key}": value for key, value in position.items() if key == "scheme"}
    recipe = make_recipe(NUMBERS if overrides else {**NUMBERS, "position": position}, overrides, written=True)
    assert recipe.model.decoder.name == "rope + window"
    parts = recipe.model.build_schemes("decoder").modules[-1].parts
    assert [type(part).__name__ for part in parts] == ["RoPE", "Window"] and parts[1].left == 5
    again = make_recipe(NUMBERS, {"position.scheme": recipe.model.decoder.name})
    assert again.model.decoder.name == recipe.model.decoder.name
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml())).model == recipe.model
