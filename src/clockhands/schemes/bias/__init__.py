"""Schemes that add to the logits what the distance alone says."""
