"""The one door to what somebody else made: configurations, weights, tokenizers and data sets.

A folder may come from anybody. Nothing that it holds runs as code unless ``trust_remote_code`` is true, and nothing
asks a question on standard input (transformers does where nobody says whether to trust). Weights are read from
safetensors alone: a pickle can run anything. Sizes are judged before memory is taken. What cannot be opened is a
CheckpointError with the path and what to do. No module elsewhere calls ``from_pretrained``, ``from_config``
or ``load_dataset``; a test reads the source for it.
"""

from clockhands.pretrained.configuration import (
    encode_bare,
    find_special_tokens,
    is_known,
    is_own,
    load_configuration,
    load_data_set,
    load_tokenizer,
    read_configuration,
    refuse_code,
    reload_configuration,
)
from clockhands.pretrained.files import (
    CONFIG,
    GENERATION,
    LOADING_CODE,
    OWN_AUTO_MAP,
    PICKLES,
    TOKENIZER,
    TRUST,
    WEIGHTS,
    explain_faults,
    first_line,
    forbid_questions,
)
from clockhands.pretrained.models import (
    build_model,
    check_fits,
    count_numbers,
    count_stored_bytes,
    list_weight_files,
    load_model,
    load_state,
    refuse_not_finite,
    refuse_untied,
)
from clockhands.reading import read_json

__all__ = [
    "CONFIG",
    "GENERATION",
    "LOADING_CODE",
    "OWN_AUTO_MAP",
    "PICKLES",
    "TOKENIZER",
    "TRUST",
    "WEIGHTS",
    "build_model",
    "check_fits",
    "count_numbers",
    "count_stored_bytes",
    "encode_bare",
    "explain_faults",
    "find_special_tokens",
    "first_line",
    "forbid_questions",
    "is_known",
    "is_own",
    "list_weight_files",
    "load_configuration",
    "load_data_set",
    "load_model",
    "load_state",
    "load_tokenizer",
    "read_configuration",
    "read_json",
    "refuse_code",
    "refuse_not_finite",
    "refuse_untied",
    "reload_configuration",
]
