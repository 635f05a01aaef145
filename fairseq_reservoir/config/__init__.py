"""Configuration for fairseq-hydra-train: ``--config-dir`` of this folder, or ``pkg://fairseq_reservoir.config`` in hydra.searchpath."""
