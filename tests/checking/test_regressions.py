"""Faults that real classes of transformers have: found as they stand, gone once the one line is mended.

So the check neither overlooks the fault nor calls something else by its name. When transformers repairs one, its case
fails here, and goes.
"""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import transformers
from packaging.version import Version
from transformers import masking_utils
from transformers.models.dbrx import modeling_dbrx
from transformers.models.falcon import modeling_falcon
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.mamba import modeling_mamba
from transformers.models.prophetnet import modeling_prophetnet
from transformers.models.roberta import modeling_roberta
from transformers.models.zamba2 import modeling_zamba2

from clockhands.checking import examine

Patch = pytest.MonkeyPatch


def rewrite(patch: Patch, owner: Any, name: str, old: str, new: str) -> None:
    """Replace a piece of a function's source."""
    original = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(original))
    assert source.count(old) == 1, f"{name} has changed"
    space = dict(vars(sys.modules[owner.__module__] if isinstance(owner, type) else owner))
    exec(source.replace(old, new), space)
    patch.setattr(owner, name, space[name])


def prophetnet(patch: Patch) -> None:
    """Rows in the order in which they are read afterwards: (batch, ngram, head, sequence)."""
    owner, name = modeling_prophetnet.ProphetNetNgramSelfAttention, "get_predict_relative_pos_embeddings"
    rewrite(patch, owner, name, "permute(0, 2, 1, 4, 3)", "permute(0, 1, 4, 2, 3)")


def roberta(patch: Patch) -> None:
    """Positions for generation count from where the model does."""
    owner, name = modeling_roberta.RobertaForCausalLM, "_prepare_position_ids_for_generation"
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda self, *given: original(self, *given) + self.config.pad_token_id + 1)


def gaps(patch: Patch) -> None:
    """Only a position that falls begins a document."""
    rewrite(patch, masking_utils, "find_packed_sequence_indices", "(position_diff != 1)", "(position_diff < 1)")


def dbrx(patch: Patch) -> None:
    """Both bases of the configuration are read."""
    owner = modeling_dbrx.DbrxRotaryEmbedding
    old = 'config.rope_parameters["rope_theta"]'
    rewrite(patch, owner, "compute_default_rope_parameters", old, f"{old} * config.attn_config.rope_theta")


def falcon(patch: Patch) -> None:
    """ALiBi is in the mask already."""
    added = "attention_scores + alibi.view(batch_size, self.num_heads, 1, -1)"
    rewrite(patch, modeling_falcon.FalconAttention, "forward", added, "attention_scores")


def gpt_oss(patch: Patch) -> None:
    """The masks are given the positions that the model has."""
    for name in ("create_causal_mask", "create_sliding_window_causal_mask"):
        original = getattr(modeling_gpt_oss, name)

        @functools.wraps(original)
        def with_positions(original: Callable[..., Any] = original, **named: Any) -> Any:
            return original(**{**named, "position_ids": sys._getframe(1).f_locals["position_ids"]})

        patch.setattr(modeling_gpt_oss, name, with_positions)


def zamba2(patch: Patch) -> None:
    """The single step clamps as the scan does (time_step_min is 0.001 in the configuration)."""
    old = "        dt = F.softplus(dt)\n"
    rewrite(patch, modeling_zamba2, "mamba2_selective_state_update", old, f"{old}    dt = dt.clamp(min=0.001)\n")


CASES: dict[str, tuple[str, list[str], Callable[[Patch], None]]] = {
    "prophetnet-future": ("prophetnet:causal", ["causal.future", "causal.prefix", "cache.steps"], prophetnet),
    "roberta-generate": ("roberta:causal", ["generate.forward"], roberta),
    "gaps": ("llama:causal", ["packing.gaps"], gaps),
    "dbrx-theta": ("dbrx:causal", ["config.theta"], dbrx),
    "falcon-alibi": ("falcon+alibi:causal", ["attention.sdpa"], falcon),
    "gpt-oss-packing": ("gpt_oss:causal", ["packing.positions"], gpt_oss),
    "zamba2-clamp": ("zamba2:causal", ["cache.steps"], zamba2),
}
SHARED = {"roberta-generate", "gaps", "gpt-oss-packing", "zamba2-clamp"}
"""Cases whose code many models share."""


def verdicts(name: str, only: list[str]) -> set[str]:
    (result,) = examine(name, tiny=True, only=only)
    if result.fault and Version(transformers.__version__) < Version("5.23"):
        pytest.skip(f"transformers {transformers.__version__}: {result.fault}")
    return {outcome.verdict for outcome in result.outcomes}


@pytest.mark.parametrize("case", CASES)
def test_the_fault_is_found_and_gone_once_mended(case: str, monkeypatch: Patch) -> None:
    name, only, mend = CASES[case]
    assert verdicts(name, only) == {"LIBRARY" if case in SHARED else "FAIL"}
    mend(monkeypatch)
    assert verdicts(name, only) == {"PASS"}


def test_packing_survives_where_only_falling_positions_are_borders(monkeypatch: Patch) -> None:
    """Mending the gaps must not cost the isolation of documents."""
    gaps(monkeypatch)
    assert verdicts("llama:causal", ["packing.positions"]) == {"PASS"}


def test_the_scan_that_starts_at_nought_is_where_it_is_said_to_be(monkeypatch: Patch) -> None:
    """Mamba reads a second piece as if it were the first: with the state zeroed, single steps are as wrong."""
    assert verdicts("mamba:causal", ["cache.chunks"]) == {"FAIL"}
    assert verdicts("mamba:causal", ["cache.steps"]) == {"PASS"}
    original = modeling_mamba.mamba_selective_state_update

    def forgetful(state: Any, *given: Any, **named: Any) -> Any:
        return original(state.zero_(), *given, **named)

    monkeypatch.setattr(modeling_mamba, "mamba_selective_state_update", forgetful)
    assert verdicts("mamba:causal", ["cache.steps"]) == {"FAIL"}
