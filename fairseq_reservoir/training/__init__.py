"""Additions to fairseq's training: hooks, checks, the freeze-and-skip optimizer."""
