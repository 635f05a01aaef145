"""Learned masks on frozen random weights."""
