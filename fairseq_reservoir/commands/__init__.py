"""The subcommands of ``fairseq-reservoir``.

Each subcommand is a module with ``add_parser``, which declares its flags, and ``run``, which executes it. ``flag_groups`` is a part of
``--help``.
"""
