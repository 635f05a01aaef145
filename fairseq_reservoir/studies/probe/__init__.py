"""Linear probes: classifiers on the outputs of each layer, their control tasks, tables and a figure. Imports neither torch nor fairseq."""
