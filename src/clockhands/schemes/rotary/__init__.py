"""Schemes that turn queries and keys."""
