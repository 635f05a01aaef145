"""Two kinds of layers: frozen random weights with learned masks, and trained weights that are rounded to a few levels."""
