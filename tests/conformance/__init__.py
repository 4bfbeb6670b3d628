"""Tests of the tools behind docs/conformance."""
