"""Comparing with what people already use: the same numbers forward, and the same gradients."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from clockhands.schemes import AttentionInputs, Scheme
from tests.shared import load_script


def agree(
    ours: Callable[[], Tensor],
    theirs: Callable[[], Tensor],
    pairs: Sequence[tuple[Tensor, Tensor]],
    atol: float = 2e-6,
    visible: Tensor | None = None,
) -> None:
    """Both give the same tensor (where ``visible``), and for a random goal the same gradient in each pair of leaves."""
    results, seed = [], torch.Generator().manual_seed(3)
    for compute, side in ((ours, 0), (theirs, 1)):
        for pair in pairs:
            pair[side].grad = None
        out = compute()
        results.append(out if visible is None else out.masked_fill(~visible, 0.0))
    torch.testing.assert_close(results[0].float(), results[1].float().expand_as(results[0]), atol=atol, rtol=1e-5)
    goal = torch.randn(results[0].shape, generator=seed)
    for result in results:
        (result * goal.to(result.dtype)).sum().backward()
    for mine, peer in pairs:
        assert mine.grad is not None
        assert peer.grad is not None
        torch.testing.assert_close(
            mine.grad.reshape(-1), peer.grad.reshape(mine.grad.shape).reshape(-1), atol=1e-4, rtol=1e-4
        )


def compute_bias(scheme: Scheme, qpos: Tensor, kpos: Tensor | None = None, heads: int = 4, width: int = 8) -> Tensor:
    """The bias between queries and keys of zeros at these positions; keys stand where queries do, unless told."""
    kpos = qpos if kpos is None else kpos
    q, k = (torch.zeros(pos.shape[0], heads, pos.shape[1], width) for pos in (qpos, kpos))
    return scheme.bias(AttentionInputs(q, k, qpos, kpos))


def leaf(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """A random tensor that collects a gradient."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).requires_grad_()


def copied(tensor: Tensor) -> Tensor:
    """The same numbers with a gradient of their own."""
    return tensor.detach().clone().requires_grad_()


def flash_linear_attention(operator: str) -> ModuleType:
    """The plain-PyTorch reference of one of its operators: the file alone, as the package itself needs Triton."""
    package = importlib.util.find_spec("fla")
    assert package is not None and package.submodule_search_locations, "pip install fla-core"
    operators = Path(package.submodule_search_locations[0]) / "ops"
    return load_script(operators / operator / "naive.py", f"fla_{operator}")
