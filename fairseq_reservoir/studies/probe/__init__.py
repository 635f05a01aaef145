"""Linear probes (classifiers on the outputs of each layer), control tasks, and tables and a figure of the results.

This package imports neither torch nor fairseq.
"""
