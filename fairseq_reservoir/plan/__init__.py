"""Layer plans, freeze specs and the slot table they make together; needs no torch."""
