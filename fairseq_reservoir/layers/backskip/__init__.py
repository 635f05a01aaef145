"""Backskipping: skip the backward pass of a frozen layer, and estimate the gradient of its input instead."""
