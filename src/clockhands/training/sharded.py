"""Training with the model divided among processes: FSDP2, which is ``fully_shard`` of torch (Zhao et al. 2023).

Each process keeps a part of every parameter, of its gradient and of the optimiser's moments; the parameters of a layer
are gathered while it computes. What comes out is what DDP computes, on GPUs and on CPUs: not by accelerate's own FSDP,
as its ``AcceleratorState`` turns that on for GPUs alone. The parts are put together before they are written: a
checkpoint is an ordinary one, from which any number of processes can go on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from clockhands.model import Transformer
from clockhands.shapes import Tensor
from clockhands.training.trainer import ClockhandsTrainer


class ShardedTrainer(ClockhandsTrainer):
    """Divides the model before it makes the optimiser, and puts together what it saves."""

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        """Make the base class's optimiser over the parts of the parameters that this process keeps."""
        _divide_model(self.unwrap_model(), self.args.device.type)
        # For evaluation accelerate does all that it does for training, but wraps nothing into DDP; asked again, it
        # leaves the model as it is.
        self.model_wrapped = self.accelerator.prepare_model(self.model, device_placement=False, evaluation_mode=True)
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        optimizer.register_load_state_dict_pre_hook(divide_moments)
        return optimizer

    def weights(self) -> dict[str, Tensor]:
        """Gather all weights whole, tied ones as one tensor. A collective operation: every process must call it."""
        state = self.unwrap_model().state_dict(keep_vars=True)
        whole = {value: _gather_whole(value.detach()) for value in dict.fromkeys(state.values())}
        return {name: whole[value] for name, value in state.items()}

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the base class's folder with whole weights. Every process takes part, one writes."""
        weights = self.weights()
        if self.args.should_save:
            self.unwrap_model().save_pretrained(output_dir or self.folder, state_dict=weights)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save the base class's files with whole moments. Every process takes part, one writes."""
        assert self.optimizer is not None and self.lr_scheduler is not None, "there is nothing to save before training"
        state = self.optimizer.state_dict()
        moments = {
            key: {name: _gather_whole(value) for name, value in of.items()} for key, of in state["state"].items()
        }
        if self.args.should_save:
            torch.save({**state, "state": moments}, Path(output_dir) / "optimizer.pt")
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / "scheduler.pt")


def _divide_model(model: torch.nn.Module, device: str) -> None:
    """Divide the parameters of a model, in place: those of a layer are gathered for it, all others for every step."""
    core = cast(Transformer, model.transformer)
    # A number cannot be divided; every process keeps it, and the mean of its gradient.
    numbers = {parameter for parameter in model.parameters() if parameter.dim() == 0}
    for number in numbers:
        if number.requires_grad:
            number.register_post_accumulate_grad_hook(_average_gradient)
    options: dict[str, Any] = {"mesh": init_device_mesh(device, (dist.get_world_size(),)), "ignored_params": numbers}
    for stack in (core.encoder, core.decoder):
        for block in () if stack is None else stack.blocks:
            fully_shard(block, **options)
    fully_shard(model, **options)


def _average_gradient(parameter: Tensor) -> None:
    """Put the mean over all processes in place of a gradient."""
    gradient = cast(Tensor, parameter.grad)  # a hook is called after its gradient was accumulated
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()


def _gather_whole(value: Any) -> Any:
    """Return a divided tensor whole, on the CPU; anything else as it is. A collective operation."""
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def divide_moments(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Divide the moments in a saved state of the optimiser as their parameters are divided."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    divided: dict[Any, dict[str, Any]] = {}
    for key, moments in state["state"].items():
        like, divided[key] = parameters[key], dict(moments)
        for name, value in moments.items():
            if isinstance(like, DTensor) and isinstance(value, torch.Tensor) and value.shape == like.shape:
                divided[key][name] = distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
    return {**state, "state": divided}
