"""Fixtures for tests of sweeps."""

import multiprocessing
import signal
import time

import pytest

from fairseq_reservoir import cli


class Sweep:
    """A sweep of a grid file in a temporary folder."""

    def __init__(self, tmp_path):
        self.grid, self.out = tmp_path / "grid.yaml", tmp_path / "out"

    def write(self, text):
        self.grid.write_text(text)
        return self

    def __call__(self, *flags):
        """Run the command in this process, and return its exit status."""
        try:
            cli.main(["sweep", str(self.grid), "--out", str(self.out), *flags])
        except SystemExit as leaving:
            return leaving.code
        return 0

    def start(self, *flags):
        """Run it in a forked process. Importing fairseq in a new one would take seconds."""

        def run():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs of a shell
            exit(self(*flags))

        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        return process

    @staticmethod
    def wait_for(condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "the condition did not become true"
            time.sleep(0.02)

    def states(self):
        return {file.parent.name: file.read_text().strip() for file in sorted(self.out.glob("*/state"))}

    def output(self, run, log="sh.out"):
        return (self.out / run / log).read_text().split()


@pytest.fixture
def sweep(tmp_path):
    return Sweep(tmp_path)
