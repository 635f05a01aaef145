"""Random tensors that follow from a seed and a name alone."""
