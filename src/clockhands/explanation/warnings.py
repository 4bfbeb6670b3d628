"""What is known to go wrong with a position configuration: each warning names the field and who loses it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from clockhands.explanation.rotation import Rotation
from clockhands.explanation.table import Positions


def list_warnings(positions: Positions) -> list[str]:
    """Return one sentence for each known way in which this configuration is misread or contradicts itself."""
    sentences = [
        f"{key} is set, but changes nothing here as {positions.program} reads the file" for key in positions.unread
    ]
    sentences += [f"{key} = {value} looks like position, and is not understood" for key, value in positions.strange]
    for rotation in positions.rotations():
        sentences += _warn_of_rotation(rotation, positions)
    sentences += _warn_of_layers(positions)
    return list(dict.fromkeys(sentences))


def _warn_of_rotation(rotation: Rotation, positions: Positions) -> Iterator[str]:
    origin, claimed = rotation.origin, positions.claimed_length
    if origin.get("base", "").startswith("default"):
        yield (
            f"the base is not in the file: {positions.program} takes {rotation.base:,.10g} ({origin['base']}); a "
            "program with another default gets other angles"
        )
    if rotation.rule in ("yarn", "llama3", "longrope") and origin.get("original_length") == "max_position_embeddings":
        yield (
            f"original_max_position_embeddings is not set: {positions.program} takes max_position_embeddings "
            f"({rotation.original_length:,}); the trained length is probably that divided by {rotation.factor:g}"
        )
    if rotation.rule == "yarn" and rotation.original_length and claimed:
        implied = claimed / rotation.original_length
        if implied != 1 and abs(implied - rotation.factor) > 1e-6 * implied:
            yield (
                f"factor is {rotation.factor:g} ({origin.get('factor')}), but the claimed length / "
                f"original length is {implied:g}; {positions.program} uses factor"
            )
    if "mscale" in origin.get("amplitude", "") and rotation.rule == "yarn" and rotation.logit_factor == 1.0:
        yield (
            f"YaRN's amplitude is {rotation.amplitude:.4g} because of mscale and mscale_all_dim; a program that "
            f"ignores them (vLLM before its pull request 48623) takes 0.1 ln(factor) + 1"
        )
    if rotation.rule == "proportional":
        yield (
            f"the rule is proportional: the {rotation.pairs - int(rotation.share * rotation.channels // 2)} slowest of "
            f"{rotation.pairs} pairs stand still, and the others keep the frequencies of the whole width; read as "
            "partial rotation, every frequency but the first would be another"
        )


def _warn_of_layers(positions: Positions) -> Iterator[str]:
    rotations = positions.rotations()
    if len(rotations) > 1 and len({(r.rule, r.factor) for r in rotations}) > 1:
        rules = ", ".join(sorted({f"{r.rule} (factor {r.factor:g})" for r in rotations}))
        yield f"kinds of layers are scaled differently ({rules}); a program with one table for all loses one of them"
    elif len({r.base for r in rotations}) > 1:
        bases = ", ".join(f"{base:,.10g}" for base in sorted({r.base for r in rotations}))
        yield f"kinds of layers have different bases ({bases}); a program with one base for all loses one of them"
    still = [index for index, layer in enumerate(positions.layers) if layer.attends and layer.rotation is None]
    if rotations and still:
        names = name_layers(still)
        yield f"{len(still)} attention layers do not rotate ({names}); a program that rotates all differs there"


def name_layers(numbers: list[int]) -> str:
    """Return layer numbers as text: "0 to 3, 8", or with their step, "3, 7, … 35", where they have one."""
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    if len(numbers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}, {numbers[1]}, … {numbers[-1]}"
    runs: list[list[int]] = []
    for index in numbers:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts[:4]) + (f" and {len(runs) - 4} more runs" if len(runs) > 4 else "")
