"""Console script ``fairseq-reservoir``. It is outside the package so that some commands start without torch and fairseq.

While ``is_running`` is true, importing ``fairseq_reservoir`` does not register the models. ``fairseq_reservoir.cli`` does it for
commands that need models.
"""

is_running = False


def main() -> None:
    """Run the command line."""
    global is_running
    is_running = True
    from fairseq_reservoir.cli import main

    main()


if __name__ == "__main__":
    import fairseq_reservoir_cli  # the package reads is_running of this module, not of __main__

    fairseq_reservoir_cli.main()
