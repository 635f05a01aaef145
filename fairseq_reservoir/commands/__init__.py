"""The subcommands of ``fairseq-reservoir``.

Each subcommand is a module with ``add_parser``, which declares its flags, and ``run``, which executes it. Other modules, such as
``flag_groups``, help several subcommands.
"""
