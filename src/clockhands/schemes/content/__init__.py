"""Schemes in which content and position meet: in the logits, in the values, or in positions made from content."""
