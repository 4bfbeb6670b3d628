"""The output layer: from a last state to a logit for each token of the vocabulary."""

from __future__ import annotations

from torch import nn

from clockhands.model.config import TransformerConfig
from clockhands.model.feed_forward import ACTIVATIONS
from clockhands.model.norms import make_norm
from clockhands.shapes import Float, Tensor

__all__ = ["OutputLayer", "OutputTransform"]


class OutputTransform(nn.Module):
    """norm(act(W x + b)), which BERT's masked language models put before the output matrix (Devlin et al. 2019)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = make_norm(config)

    def forward(self, states_ND: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Transform states [..., D] to states [..., D]."""
        return self.norm(self.activation(self.dense(states_ND)))


class OutputLayer(nn.Linear):
    """The linear layer from last states to logits; ``weight`` is [V, D].

    Code that multiplies by ``weight`` itself, as the loss in chunks does, calls ``prepare_states`` first.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config.d_model, config.vocab_size, bias=config.output_bias)
        self.transform = OutputTransform(config) if config.output_transform else None
        self.scale = config.output_scale

    def prepare_states(self, states_ND: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Return the states that the matrix multiplies: transformed and scaled where the configuration says so."""
        states = states_ND if self.transform is None else self.transform(states_ND)
        return states if self.scale == 1.0 else states * self.scale

    def forward(self, states_ND: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Compute logits [..., V] of states [..., D]."""
        return super().forward(self.prepare_states(states_ND))
