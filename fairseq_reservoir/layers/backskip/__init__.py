"""Backskipping: leave out the backward pass of a frozen layer and estimate the gradient that it would hand down."""
