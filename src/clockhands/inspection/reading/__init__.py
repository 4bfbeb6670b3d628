"""Reading a model on text: hidden states, attention calls and their replay, and the exact split of the logits."""
