"""Schemes that enter at the token embedding."""
