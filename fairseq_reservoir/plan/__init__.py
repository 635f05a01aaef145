"""Layer plans, freeze specs, and the slot table that lists the trained and frozen tensors of each layer. Does not import torch."""
