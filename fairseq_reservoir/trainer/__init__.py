"""The trainer of this package and the checks before a training. ``install`` adds the trainer and the checks to fairseq.

Functions that check or refuse flags raise ``errors.InputError``. Its message is one line that names the flag to change.
"""
