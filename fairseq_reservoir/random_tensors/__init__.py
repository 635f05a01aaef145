"""Random tensors that depend only on a seed and a name, and hashes of tensors."""
