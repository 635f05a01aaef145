"""Hashes of tensors, and random tensors that depend only on a seed and a name."""
