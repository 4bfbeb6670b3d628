"""{law: {scheme: reason}}: what a scheme honestly cannot promise. The law skips it, and its page says why."""

from __future__ import annotations

EXCEPTIONS: dict[str, dict[str, str]] = {
    "packing": {
        "index": "normalised by length it reads the longest document of the row",
        "rope(spectrum=dynamic": "its frequencies follow the longest document of the row",
        "rope(spectrum=longrope": "its frequencies follow the longest document of the row",
    },
    "far": {
        "dape": "its network is fed biases as they are, and float32 carries seven digits of a million through it",
        "dynamic": "its network is fed distances as they are, and float32 carries seven digits of a million through it",
        "xpos": "its factors leave the range of float32 over such spans, which it refuses",
        "swin": "offsets beyond its window raise PositionError",
    },
    "shift": {
        "temperature()": "it begins to act at 8192 tokens",
        "fire": "its normaliser is the learned L until a query stands beyond it",
    },
    "finite differences of parameters": {
        "dape": "its bias is computed in float32",
        "path": "its coordinates are computed in float32",
        "dynamic": "its curve is computed in float32 whatever the inputs, too coarse for finite differences",
        "fire": "its curve is computed in float32 whatever the inputs, too coarse for finite differences",
    },
}


def excuses(name: str) -> dict[str, str]:
    """Why a scheme does not keep the laws that it does not keep, by law; a key may name options after the scheme."""
    found: dict[str, list[str]] = {}
    for law, of in EXCEPTIONS.items():
        for key, reason in of.items():
            scheme, _, options = key.partition("(")
            if scheme == name:
                said = options.rstrip(")")
                found.setdefault(law, []).append(f"with {said} {reason}" if said else reason)
    return {law: "; ".join(reasons) for law, reasons in found.items()}
