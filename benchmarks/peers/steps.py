"""Batches out of one file, handed to a toolkit's own training loop, a line on stdin for each; seconds are reported as lines of JSON.

The clock runs from the moment a batch is handed out until the loop asks for the next: forward, loss, backward, clipping, optimizer, and
whatever else the loop does. Needs torch and nothing else of the environment.
"""

import json
import os
import sys
import time
from importlib import metadata

import torch

REPORTS = "BENCHMARK_REPORTS"  # the number of an open file, for what is not to be mixed with what a toolkit prints


class Job:
    """One worker's work: the numbers of a JSON file as attributes, and the clock.

    The file holds ``threads``, ``seed``, ``precision``; ``width``, ``ffn``, ``heads``, ``encoder_layers``, ``decoder_layers``, ``words``;
    ``dropout``, ``smoothing``, ``rate``, ``betas``, ``warm_up``, ``clip``; and ``batches``: lists of pairs of sentences, as ids that end
    with ``EOS``.
    """

    BOS, PAD, EOS, UNK = range(4)  # as in fairseq's dictionaries

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            vars(self).update(json.load(file))
        self._reports = os.fdopen(int(os.environ.get(REPORTS, "1")), "w", encoding="utf-8")
        torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)

    def rectangles(self):
        """Sources and targets of the batches: tensors of ids, sentences x longest, padded on the right."""
        for batch in self.batches:
            yield tuple(
                torch.nn.utils.rnn.pad_sequence([torch.tensor(pair[side]) for pair in batch], True, self.PAD)
                for side in (0, 1)
            )

    def after_start(self, targets):
        """Decoder inputs for ``targets`` as fairseq makes them: the end of sentence first, the last word left out."""
        inputs = targets.roll(1, dims=1)
        inputs[:, 0] = self.EOS
        return inputs.masked_fill_(targets.eq(self.PAD), self.PAD)

    def hand_out(self, batches, model, package):
        """The same batches, each after a line on stdin, and a report of the seconds until the next is asked for."""
        self.ready(model, package)
        for batch in batches:
            self.wait()
            began = time.perf_counter()
            yield batch
            self.stepped(time.perf_counter() - began)
        self.wait()

    def ready(self, model, package):
        """The first report: how many parameters are trained, and the version of the toolkit, by its package's name."""
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._steps, self._before = 0, [parameter.detach().clone() for parameter in self._parameters]
        self._report(
            parameters=sum(map(torch.numel, self._parameters)), version=f"{package} {metadata.version(package)}"
        )

    def wait(self):
        """For a line on stdin; ends the process with stdin, before a toolkit saves, validates or reports."""
        if not sys.stdin.readline():
            os._exit(0)

    def stepped(self, seconds):
        """The report of a step; the second's says too how many entries of the parameters have changed: in the first, the rate is 0."""
        self._steps += 1
        if self._steps == 2:
            moved = sum(int(old.ne(new).sum()) for old, new in zip(self._before, self._parameters, strict=True))
            self._before.clear()
            self._report(seconds=seconds, moved=moved)
        else:
            self._report(seconds=seconds)

    def _report(self, **facts):
        print(json.dumps(facts), file=self._reports, flush=True)
