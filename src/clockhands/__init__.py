"""Clockhands: the workbench for how Transformers know word order."""

__version__ = "0.1.0"
