"""Schemes that add a bias to the logits, from the positions of query and key alone."""
