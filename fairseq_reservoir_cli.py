"""The console script ``fairseq-reservoir``, outside the package so that its light commands start without torch and fairseq.

While ``is_running`` is true, importing ``fairseq_reservoir`` does not register the models: ``fairseq_reservoir.cli`` does that
for the commands that build or read a model.
"""

is_running = False


def main() -> None:
    """Run the command line."""
    global is_running
    is_running = True
    from fairseq_reservoir.cli import main

    main()


if __name__ == "__main__":
    import fairseq_reservoir_cli  # the module that the package finds, which __main__ is not

    fairseq_reservoir_cli.main()
