"""Laws of position for what is not torch: log-probabilities of token lists, from any program that runs a model."""
