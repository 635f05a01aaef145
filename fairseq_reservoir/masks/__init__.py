"""Learned masks on frozen random weights, and trained weights of few bits."""
