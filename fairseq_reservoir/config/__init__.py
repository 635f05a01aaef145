"""Configuration for fairseq-hydra-train: ``--config-path pkg://fairseq_reservoir.config``, or ``hydra.searchpath`` of another file."""
