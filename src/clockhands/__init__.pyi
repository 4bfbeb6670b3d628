"""What editors and mypy read of the names that are found on first use."""

from clockhands.checking import check as check
from clockhands.comparison import compare as compare
from clockhands.data import Pair as Pair
from clockhands.errors import ClockhandsError as ClockhandsError
from clockhands.explanation import explain as explain
from clockhands.exploring import explore as explore
from clockhands.extension.extend import extend as extend
from clockhands.findings import Finding as Finding
from clockhands.findings import Findings as Findings
from clockhands.generation.evaluate import evaluate as evaluate
from clockhands.generation.generate import generate as generate
from clockhands.generation.translate import translate as translate
from clockhands.inspection import inspect as inspect
from clockhands.runs.export import push as push
from clockhands.studies.run import study as study
from clockhands.studies.tour import tour as tour
from clockhands.training import train as train

__version__: str
