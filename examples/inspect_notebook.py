# %% [markdown]
# # Sum or concatenation?
# Why is the position *added* to the word and not set beside it? Two untrained encoders, alike but for this, side by
# side. Open this file as a notebook (VS Code, Jupyter with jupytext); the last expression of a cell draws itself.

# %%
import torch

import clockhands
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.report import put_side_by_side

torch.manual_seed(0)
ids = torch.randint(4, 500, (24, 32))


def encoder(**choices: object) -> Transformer:
    """A small encoder; ``choices`` say how position gets in."""
    sizes = {"vocab_size": 500, "d_model": 64, "num_heads": 4, "d_ff": 128, "encoder_layers": 2}
    return Transformer(TransformerConfig(kind="encoder", tying="none", **sizes, **choices))


# %%
added = clockhands.inspect(encoder(encoder=PositionConfig("sinusoidal")), texts=ids, name="sum", control=False)
beside = clockhands.inspect(
    encoder(encoder=PositionConfig("sinusoidal", combine="concatenate", width=16)),
    texts=ids,
    name="concatenation",
    control=False,
)
both = put_side_by_side(added, beside)
both  # noqa: B018 - a notebook shows it

# %% [markdown]
# How loud is position next to the word, and how much of the first layer's attention does it decide?

# %%
for name in ("loudness", "logits.layers"):
    print(both[name].verdict, end="\n\n")

# %% [markdown]
# The same words without the factor √d: the position drowns them.

# %%
quiet = clockhands.inspect(
    encoder(encoder=PositionConfig("sinusoidal"), token_scale="one"), texts=ids, name="without √d", control=False
)
print(quiet["loudness"].verdict)
