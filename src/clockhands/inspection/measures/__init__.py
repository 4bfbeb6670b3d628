"""One file a measure: from a subject and its capture to findings. Input outwards, then cause."""
