"""Schemes that rotate or scale queries and keys."""
