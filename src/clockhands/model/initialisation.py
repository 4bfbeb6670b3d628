"""Initialise the parameters of a model, and restore what loading a checkpoint leaves without values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import partial

import torch
from torch import nn

from clockhands.model.config import TransformerConfig
from clockhands.model.fused_linear import FusedLinear
from clockhands.model.input import InputLayer
from clockhands.schemes import Scheme
from clockhands.shapes import Float, Tensor

__all__ = [
    "copy_tables",
    "initialise_embedding",
    "initialise_linear",
    "list_initialisers",
    "split_projections",
    "zero_bias",
]


def list_initialisers(
    model: nn.Module, config: TransformerConfig, tied: Collection[str], *, schemes: bool = False
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the name of every module of a model that draws parameters, and the function that draws them.

    ``tied``: names of the parameters whose matrix belongs to another one (``Transformer.map_tied_parameters``).
    ``schemes``: whether schemes, which initialise themselves at construction, are among the modules. A composition is
    yielded first and draws all its parts; then each part is yielded and drawn again. So where a caller seeds every draw
    by the name (``comparison.initial_weights``), the values of a part follow from its own name.
    """
    ids_in_schemes = {id(part) for module in model.modules() if isinstance(module, Scheme) for part in module.modules()}
    # A tied matrix is initialised as an embedding: drawn again as an output layer, it would be overwritten.
    tied_modules = {name.rpartition(".")[0] for name in tied}
    for name, module in model.named_modules():
        if isinstance(module, Scheme) and schemes:
            yield name, module.reset_parameters
        elif id(module) in ids_in_schemes:
            continue
        elif name in tied_modules:
            yield name, partial(zero_bias, module)
        elif isinstance(module, nn.Embedding):
            yield name, partial(initialise_embedding, module, config)
        elif isinstance(module, nn.Linear):
            yield name, partial(initialise_linear, module, config)
        elif isinstance(module, InputLayer):
            yield name, module.reset_scale


def copy_tables(source: nn.Module, target: nn.Module) -> None:
    """Copy the buffers of ``source`` that no checkpoint holds to ``target``, an equal module, on its device."""
    for path, module in source.named_modules():
        target_module = target.get_submodule(path)
        for name in module._non_persistent_buffers_set:
            table, old_table = getattr(module, name), getattr(target_module, name)
            setattr(target_module, name, None if table is None else table.to(old_table.device, copy=True))


def initialise_embedding(module: nn.Embedding, config: TransformerConfig) -> None:
    """Draw an embedding as ``config.initialisation`` says.

    With "paper" from N(0, 1/d_model), so that tokens times √d_model have channels of variance 1; with "normal02" from
    N(0, 0.02²), with "unit" from N(0, 1), with "xavier" from Xavier's uniform distribution (Glorot & Bengio 2010).
    """
    if config.initialisation == "xavier":
        nn.init.xavier_uniform_(module.weight)
    else:
        std = {"normal02": 0.02, "unit": 1.0}.get(config.initialisation, config.d_model**-0.5)
        nn.init.normal_(module.weight, std=std)


@torch.no_grad()
def zero_bias(module: nn.Module) -> None:
    """Set the bias of a module to zero if it has one."""
    bias = getattr(module, "bias", None)
    if isinstance(bias, nn.Parameter):
        nn.init.zeros_(bias)


def initialise_linear(module: nn.Linear, config: TransformerConfig) -> None:
    """Draw the matrix of a linear layer: with ``initialisation`` "normal02" from N(0, 0.02²), else by Xavier's rule.

    The bound of Xavier's uniform distribution (Glorot & Bengio 2010, equation 16) is that of each projection alone,
    even where several are fused into one matrix. The bias becomes zero.
    """
    if config.initialisation == "normal02":
        nn.init.normal_(module.weight, std=0.02)
    else:
        for rows, weight_OI in split_projections(module):
            bound = math.sqrt(6 / (module.in_features + rows))
            nn.init.uniform_(weight_OI, -bound, bound)
    zero_bias(module)


def split_projections(module: nn.Linear) -> list[tuple[int, Float[Tensor, "O I"]]]:
    """Split a linear layer into its projections: the number of rows and the weight of each.

    Where all have equally many rows, one entry with the weight of the layer stands for all.
    """
    widths = module.widths if isinstance(module, FusedLinear) else (module.out_features,)
    if len(set(widths)) == 1:
        return [(widths[0], module.weight)]
    weights = module.weight.split(widths)
    for weight_OI in weights:
        # transformers marks the parameters that a checkpoint has filled, and then torch.nn.init leaves them alone.
        weight_OI.__dict__.update(module.weight.__dict__)
    return list(zip(widths, weights, strict=True))
