"""Dataclasses, presets and checks of the models' flags.

A function that refuses a value raises ``errors.InputError``. The message is one line with the flag, the value and the allowed values.
"""
