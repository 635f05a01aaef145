"""Layer plans, freeze specs and the slot table that is compiled from them. Does not import torch."""
