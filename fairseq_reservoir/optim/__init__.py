"""Optimizers: those of fairseq, each also as one that freezes parameters while a run goes on."""
