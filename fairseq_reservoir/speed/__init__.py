"""Faster training of the same model: ``--fast``, the cache of frozen prefixes, the number of threads."""
