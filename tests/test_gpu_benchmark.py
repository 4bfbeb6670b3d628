"""benchmarks/gpu.py on a CPU: what it writes, that it goes on, and that nothing wrong or too large gets a ratio."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from clockhands.schemes import CATALOGUE

Captured = pytest.CaptureFixture[str]
FOLDER = Path(__file__).parent.parent / "benchmarks"
OURS, PLAIN, MASK, FLEX = "clockhands", "SDPA, no position", "SDPA, bias as a mask", "FlexAttention, compiled"
STEPS = "the computation step by step"


@pytest.fixture(scope="module")
def scripts() -> Iterator[SimpleNamespace]:
    """The scripts, with FlexAttention as it is without the compiler, which takes minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        import attention_ways
        import gpu
        import gpu_timing

        patch.setattr(attention_ways, "compile_flex_attention", lambda: flex_attention)
        patch.setattr(gpu_timing, "LONGEST", 0.0)
        yield SimpleNamespace(gpu=gpu, ways=attention_ways, timing=gpu_timing)
    for name in ("attention_ways", "gpu", "gpu_timing", "timing"):
        sys.modules.pop(name, None)


def measure(scripts: SimpleNamespace, out: Path, *more: str, schemes: str = "alibi", status: int = 0) -> dict[str, Any]:
    """Run the command with 40 tokens and return what it has written."""
    command = ["--device", "cpu", "--dtype", "float32", "--lengths", "40", "--schemes", *schemes.split()]
    assert scripts.gpu.main([*command, "--out", str(out), *more]) == status
    return dict(json.loads(out.read_text("utf8")))


def test_a_result_says_what_was_measured_and_where(scripts: SimpleNamespace, tmp_path: Path) -> None:
    table = measure(scripts, tmp_path / "gpu.json", schemes="alibi learned")
    assert table["machine"]["torch"] == torch.__version__
    assert table["machine"]["GPU"] is None
    assert "embedding alone" in table["left out"]["learned"]
    (label,) = table["results"]
    cell = table["results"][label]
    assert label == "alibi, 40, float32"
    assert cell["signature"].startswith("attention|scheme:alibi|tokens:40|dtype:float32|heads:8x64|")
    for where in ("apart", "apart in float32"):
        assert set(cell[where]) == {MASK, FLEX, STEPS}
        assert all(apart < 0.1 for apart in cell[where].values())
    for name in ("forward", "forward and backward"):
        for way in (PLAIN, MASK):
            entry = cell[name][way]
            assert entry["milliseconds"] > 0
            ratio = entry["time over ours"]
            assert ratio["low"] <= ratio["median"] <= ratio["high"]
            assert entry["extra MB"] is None, "known of a GPU alone"
        assert "time over ours" not in cell[name][OURS]
    assert cell["forward"][FLEX]["milliseconds"] > 0
    assert cell["forward and backward"][FLEX] == {"refused": "FlexAttention has no backward pass on a CPU"}


def test_it_goes_on_where_it_stopped(scripts: SimpleNamespace, tmp_path: Path, capsys: Captured) -> None:
    out, words = tmp_path / "gpu.json", "alibi rope window"
    first = measure(scripts, out, "--minutes", "0", schemes=words)
    assert list(first["results"]) == ["alibi, 40, float32"], "the first is always begun"
    assert "1 measured; left for the same command: rope, 40; window, 40" in capsys.readouterr().out
    whole = measure(scripts, out, schemes=words)
    assert list(whole["results"]) == [f"{name}, 40, float32" for name in words.split()]
    assert whole["results"]["alibi, 40, float32"] == first["results"]["alibi, 40, float32"]
    assert "2 measured; left for the same command: nothing" in capsys.readouterr().out


def test_figures_of_two_machines_do_not_meet(scripts: SimpleNamespace, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "gpu.json"
    table = measure(scripts, out)
    table["machine"]["GPU"] = "NVIDIA H100"
    out.write_text(json.dumps(table), "utf8")
    assert measure(scripts, out, schemes="rope", status=2) == table
    assert "give another --out" in capsys.readouterr().err


def fail_with(fault: Exception) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise fault

    return fail


@pytest.mark.parametrize("method", ["attend", "attend_with_mask"])
def test_what_does_not_fit_is_told_and_the_rest_measured(
    method: str, scripts: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 GiB.\nand more")
    monkeypatch.setattr(scripts.ways.Case, method, fail_with(fault))
    (cell,) = measure(scripts, tmp_path / "gpu.json")["results"].values()
    name = OURS if method == "attend" else MASK
    for part in ("forward", "forward and backward"):
        assert cell[part][name] == {"out of memory": "CUDA out of memory. Tried to allocate 32.00 GiB."}
        assert cell[part][PLAIN]["milliseconds"] > 0
        assert ("time over ours" in cell[part][PLAIN]) is (name != OURS)


def test_memory_may_run_out_between_rounds_and_our_own_error_is_a_failure(
    scripts: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts.timing, "interleave", fail_with(torch.OutOfMemoryError("CUDA out of memory.")))
    (cell,) = measure(scripts, tmp_path / "gpu.json")["results"].values()
    assert cell["forward"]["in turns"] == {"out of memory": "CUDA out of memory."}
    assert "milliseconds" not in cell["forward"][OURS]
    monkeypatch.setattr(scripts.ways.Case, "attend", fail_with(RuntimeError("invalid dtype for bias")))
    (cell,) = measure(scripts, tmp_path / "other.json", status=1)["results"].values()
    assert cell["failures"][0] == "alibi, 40, float32, forward: clockhands fails: RuntimeError: invalid dtype for bias"


@pytest.mark.parametrize("broken", [MASK, OURS])
def test_two_different_things_have_no_ratio(
    broken: str, scripts: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A peer that differs is wrong; where ours differs from the steps, nothing is timed."""
    method = "attend" if broken == OURS else "attend_with_mask"
    right = getattr(scripts.ways.Case, method)
    monkeypatch.setattr(scripts.ways.Case, method, lambda case: right(case) + 0.01)
    (cell,) = measure(scripts, tmp_path / "gpu.json", status=1)["results"].values()
    named = STEPS if broken == OURS else MASK
    assert any(f"alibi, 40, float32: {named} and clockhands are 1" in said for said in cell["failures"])
    assert "times as far apart in float32 as they may be" in capsys.readouterr().out
    for part in ("forward", "forward and backward"):
        assert cell[part][broken] == {"wrong": "its output differs, see failures"}
        assert ("time over ours" in cell[part][PLAIN]) is (broken != OURS)


def test_a_not_a_number_is_a_difference(scripts: SimpleNamespace) -> None:
    ours, theirs = torch.zeros(2), torch.tensor([0.0, torch.nan])
    assert not scripts.ways.find_largest_difference(ours, theirs) <= 1
    assert not scripts.ways.find_mean_difference(ours, theirs) <= 1
    assert scripts.ways.find_largest_difference(ours, ours + 2e-4) == pytest.approx(2, rel=1e-3)
    ones = torch.ones(8, dtype=torch.bfloat16)
    assert scripts.ways.find_mean_difference(ones * 0.75, ones) == pytest.approx(0.25 / 0.05)


def test_every_scheme_is_measured_or_left_out_with_a_reason(scripts: SimpleNamespace) -> None:
    schemes = scripts.ways.list_schemes()
    assert set(CATALOGUE) <= set(schemes)
    left_out = {name for name, found in schemes.items() if isinstance(found, str)}
    assert {"sinusoidal", "swin", "deepseek-v3"} <= left_out
    assert not left_out & {"none", "rope", "mrope", "cope", "gpt-oss/local", "hybrid-2026/global"}


@pytest.mark.parametrize("name", ["mrope", "t5", "window", "forgetting", "rerope", "composition", "llama-4/local"])
def test_every_peer_computes_what_ours_does(name: str, scripts: SimpleNamespace) -> None:
    """One scheme of each kind; the command compares all."""
    scheme, cpu = scripts.ways.perturb(scripts.ways.list_schemes()[name]()), torch.device("cpu")
    case = scripts.ways.Case(scheme, 150, torch.bfloat16, cpu).shorten()
    apart = scripts.timing.compare_outputs(case, cpu, scripts.ways.find_largest_difference, {})
    assert set(case.list_equals()) | {STEPS} == set(apart)
    assert max(apart.values()) < 0.2
