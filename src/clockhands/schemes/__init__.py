"""Every way to encode position, each usable in anybody's model. ``CATALOGUE`` is the list: one line a scheme."""

from __future__ import annotations

from typing import Any

from clockhands.catalogue import Catalogue, get_module_line
from clockhands.schemes.absolute.axes import SinusoidalAxes
from clockhands.schemes.absolute.bands import FourierBands
from clockhands.schemes.absolute.binary import Binary
from clockhands.schemes.absolute.fourier import LearnableFourier
from clockhands.schemes.absolute.index import Index
from clockhands.schemes.absolute.learned import Learned
from clockhands.schemes.absolute.none import NoPosition
from clockhands.schemes.absolute.random import RandomVectors
from clockhands.schemes.absolute.sinusoidal import Sinusoidal
from clockhands.schemes.absolute.time2vec import Time2Vec
from clockhands.schemes.absolute.universal import Universal
from clockhands.schemes.bias.alibi import Alibi
from clockhands.schemes.bias.alibi_axes import AlibiAxes
from clockhands.schemes.bias.chunks import Chunks
from clockhands.schemes.bias.diet import DIET
from clockhands.schemes.bias.fire import Fire
from clockhands.schemes.bias.kerple import Kerple
from clockhands.schemes.bias.mlp import DynamicPositionBias
from clockhands.schemes.bias.sandwich import Sandwich
from clockhands.schemes.bias.swin import LogCPB, SwinTable
from clockhands.schemes.bias.t5 import T5Bias
from clockhands.schemes.bias.window import Window
from clockhands.schemes.catalogue import (
    Sizes,
    build,
    find_option_faults,
    list_meant,
    list_sizes,
    read_part,
)
from clockhands.schemes.composition import Composition
from clockhands.schemes.content.carope import CARoPE
from clockhands.schemes.content.cope import CoPE
from clockhands.schemes.content.dape import DAPE
from clockhands.schemes.content.deberta import DeBERTa
from clockhands.schemes.content.forgetting import Forgetting
from clockhands.schemes.content.inkling import Inkling
from clockhands.schemes.content.path import PaTH
from clockhands.schemes.content.repo import RePo
from clockhands.schemes.content.selective import SelectiveRoPE
from clockhands.schemes.content.shaw import Shaw
from clockhands.schemes.content.sinks import Sinks
from clockhands.schemes.content.stick_breaking import StickBreaking
from clockhands.schemes.content.transformer_xl import TransformerXL
from clockhands.schemes.content.tupe import TUPE
from clockhands.schemes.distance import DistanceBias
from clockhands.schemes.rotary.axial import Axial
from clockhands.schemes.rotary.dual_chunk import DualChunk
from clockhands.schemes.rotary.fope import FoPE
from clockhands.schemes.rotary.grape import GRAPE
from clockhands.schemes.rotary.liere import LieRE
from clockhands.schemes.rotary.mixed import Mixed
from clockhands.schemes.rotary.multimodal import MRoPE
from clockhands.schemes.rotary.pope import PoPE
from clockhands.schemes.rotary.rerope import ReRoPE
from clockhands.schemes.rotary.rope import RoPE
from clockhands.schemes.rotary.rotation import compile_rotation
from clockhands.schemes.rotary.self_extend import SelfExtend
from clockhands.schemes.rotary.spectra import (
    NTK,
    Dynamic,
    HoPE,
    Linear,
    Llama3,
    LongRoPE,
    Plain,
    Proportional,
    Spectrum,
    YaRN,
)
from clockhands.schemes.rotary.ssmax import SSMax
from clockhands.schemes.rotary.temperature import Temperature
from clockhands.schemes.rotary.xpos import XPos
from clockhands.schemes.scheme import AttentionInputs, Declares, Scheme

CATALOGUE: Catalogue[type[Scheme]] = Catalogue(
    "scheme",
    {
        "none": NoPosition, "index": Index, "binary": Binary, "random": RandomVectors, "sinusoidal": Sinusoidal,
        "sinusoidal-axes": SinusoidalAxes, "learned": Learned, "learnable-fourier": LearnableFourier,
        "fourier-bands": FourierBands, "time2vec": Time2Vec, "universal": Universal, "rope": RoPE, "xpos": XPos,
        "pope": PoPE, "fope": FoPE, "axial": Axial, "mixed": Mixed, "mrope": MRoPE, "rerope": ReRoPE,
        "self-extend": SelfExtend, "dual-chunk": DualChunk, "liere": LieRE, "temperature": Temperature,
        "ssmax": SSMax, "alibi": Alibi, "alibi-axes": AlibiAxes, "t5": T5Bias, "diet": DIET, "kerple": Kerple,
        "fire": Fire, "sandwich": Sandwich, "dynamic": DynamicPositionBias, "swin": SwinTable, "log-cpb": LogCPB,
        "window": Window, "chunks": Chunks, "shaw": Shaw, "cope": CoPE, "carope": CARoPE, "dape": DAPE,
        "deberta": DeBERTa, "forgetting": Forgetting, "inkling": Inkling, "path": PaTH, "repo": RePo,
        "selective-rope": SelectiveRoPE, "sinks": Sinks, "stick-breaking": StickBreaking,
        "transformer-xl": TransformerXL, "tupe": TUPE, "grape": GRAPE, "composition": Composition,
    },
    describe=get_module_line,
    meant=lambda name: list_meant(name, CATALOGUE),
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Say which class is meant by another name for it: ``ALiBi`` for ``Alibi``."""
    if not name.startswith("_"):
        # A scheme that somebody else has put into the catalogue is not to be had from here.
        meant = [CATALOGUE[key].__name__ for key in list_meant(name, CATALOGUE) if CATALOGUE[key].__name__ in __all__]
        if meant:
            # Not an AttributeError, of which ``from clockhands.schemes import ALiBi`` would not show the sentence.
            raise ImportError(f"clockhands.schemes has no {name!r}; did you mean {' or '.join(meant[:3])}?")
    raise AttributeError(f"module 'clockhands.schemes' has no attribute {name!r}")


__all__ = [
    "CATALOGUE", "DAPE", "DIET", "GRAPE", "NTK", "TUPE", "Alibi", "AlibiAxes", "AttentionInputs", "Axial", "Binary",
    "CARoPE", "Chunks", "CoPE", "Composition", "DeBERTa", "Declares", "DistanceBias", "DualChunk", "Dynamic",
    "DynamicPositionBias", "Fire", "FoPE", "Forgetting", "FourierBands", "HoPE", "Index", "Inkling", "Kerple",
    "LearnableFourier", "Learned", "LieRE", "Linear", "Llama3", "LogCPB", "LongRoPE", "MRoPE", "Mixed", "NoPosition",
    "PaTH", "Plain", "PoPE", "Proportional", "RandomVectors", "RePo", "ReRoPE", "RoPE", "SSMax", "Sandwich", "Scheme",
    "SelectiveRoPE", "SelfExtend", "Shaw", "Sinks", "Sinusoidal", "SinusoidalAxes", "Sizes", "Spectrum",
    "StickBreaking", "SwinTable", "T5Bias", "Temperature", "Time2Vec", "TransformerXL", "Universal", "Window", "XPos",
    "YaRN", "build", "compile_rotation", "find_option_faults", "list_meant", "list_sizes", "read_part",
]  # fmt: skip
