"""The flags of the models: their dataclasses, presets and checks.

Functions that check or refuse values raise ``errors.InputError``, one line with the flag, its value and the allowed values.
"""
