"""The measures, one class each and those of one subject in a file, in the order in which a reader should meet them.

First the reader's sentences and the text, then from the input through attention and layers to the output.
"""

from clockhands.catalogue import Catalogue
from clockhands.inspection.measures.directions import Directions
from clockhands.inspection.measures.distance_curve import DistanceCurve
from clockhands.inspection.measures.heads import CrossAttentionByPosition, HeadsByPosition, HeadsDistance
from clockhands.inspection.measures.induction import Induction
from clockhands.inspection.measures.logits import ContentDistance, LogitHeads, LogitLayers
from clockhands.inspection.measures.loudness import Loudness
from clockhands.inspection.measures.measure import Measure
from clockhands.inspection.measures.order import MeanOrder, NextToken, TokenOrder
from clockhands.inspection.measures.recovery import Recovery
from clockhands.inspection.measures.repeated_text import RepeatedText
from clockhands.inspection.measures.rotation import RotationFrequencies
from clockhands.inspection.measures.sentence import SentenceAttention, SentenceSwap, SwappedWords
from clockhands.inspection.measures.survival import StateShare, Survival
from clockhands.inspection.measures.table_hands import TableHands
from clockhands.inspection.measures.table_rows import TableSimilarity, TableStep

MEASURES: Catalogue[Measure] = Catalogue(
    "measure",
    {
        measure.name: measure
        for measure in (
            SentenceAttention(),
            SentenceSwap(),
            RepeatedText(),
            Loudness(),
            Directions(),
            Recovery(),
            TableSimilarity(),
            TableHands(),
            TableStep(),
            DistanceCurve(),
            RotationFrequencies(),
            ContentDistance(),
            LogitLayers(),
            LogitHeads(),
            Survival(),
            StateShare(),
            HeadsByPosition(),
            HeadsDistance(),
            Induction(),
            CrossAttentionByPosition(),
            TokenOrder(),
            MeanOrder(),
            NextToken(),
            SwappedWords(),
        )
    },
    describe=lambda measure: measure.question,
)
"""All measures, each by the name of its finding, in the order of the page."""

__all__ = ["MEASURES", "Measure"]
