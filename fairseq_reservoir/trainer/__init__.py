"""The trainer of this package and the checks before a training. ``install`` adds both to fairseq.

Functions that check or refuse flags raise ``errors.InputError``. Its message is one line with the flag to change.
"""
