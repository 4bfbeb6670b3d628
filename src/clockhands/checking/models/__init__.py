"""Models to check: from a name, an architecture or a model in hand to a subject."""
