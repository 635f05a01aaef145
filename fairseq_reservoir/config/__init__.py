"""hydra's YAML files for fairseq-hydra-train.

Use them with ``--config-path pkg://fairseq_reservoir.config``, or name this package in ``hydra.searchpath`` of your own YAML file.
"""
