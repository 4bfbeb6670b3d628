"""Train a recipe as ``clockhands train`` does, and note how many numbers of the model each process kept.

    torchrun --nproc-per-node 2 -m tests.training.parts RECIPE OUT

Process r writes it to ``OUT.r``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from clockhands.training import train


class Count(TrainerCallback):
    """Counts while the last step is still warm."""

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        local = [p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
        Path(f"{sys.argv[2]}.{args.process_index}").write_text(str(sum(part.numel() for part in local)))


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], callbacks=[Count()])
