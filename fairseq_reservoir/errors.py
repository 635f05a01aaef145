"""The one exception that stands for a mistake of the user's."""


class InputError(ValueError):
    """A flag or file is not usable as given.

    The message is one line: the flag or file, the value received, what is allowed. From Python it is an ordinary
    ``ValueError``; the fairseq commands print its message alone (see ``fairseq_repairs.error_report``).
    """
