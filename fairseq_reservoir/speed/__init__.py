"""Faster training of the same model: ``--fast``, ``--cuda-graphs``, the cache of frozen prefixes, and the number of threads."""
