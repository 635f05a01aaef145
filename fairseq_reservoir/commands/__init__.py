"""The subcommands of ``fairseq-reservoir``, one module each: ``add_parser`` declares it, ``run`` does it; ``flag_groups`` is their help."""
