"""Feed batches from a file to a toolkit's training loop, one for each line on stdin, and report seconds as lines of JSON.

A step is timed from the moment a batch is returned until the loop requests the next one. This includes forward, loss, backward,
clipping, optimizer, and all other work of the loop. The module needs only torch.
"""

import json
import os
import sys
import time
from importlib import metadata

import torch

REPORTS = "BENCHMARK_REPORTS"  # file descriptor for reports, separate from a toolkit's own output


class Job:
    """Settings and batches of a worker, read from a JSON file, and its timing.

    The file has ``threads``, ``seed``, ``precision``; ``width``, ``ffn``, ``heads``, ``encoder_layers``, ``decoder_layers``, ``words``;
    ``dropout``, ``smoothing``, ``rate``, ``betas``, ``warm_up``, ``clip``; and ``batches``, lists of sentence pairs as token ids that
    end with ``EOS``. All are attributes of the object.
    """

    BOS, PAD, EOS, UNK = range(4)  # as in fairseq's dictionaries

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            vars(self).update(json.load(file))
        self._reports = os.fdopen(int(os.environ.get(REPORTS, "1")), "w", encoding="utf-8")
        torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)

    def rectangles(self):
        """Yield (source, target) of each batch: tensors of token ids (sentences, longest), padded on the right."""
        for batch in self.batches:
            yield tuple(
                torch.nn.utils.rnn.pad_sequence([torch.tensor(pair[side]) for pair in batch], True, self.PAD)
                for side in (0, 1)
            )

    def after_start(self, targets):
        """Decoder inputs for ``targets`` as in fairseq: shifted right by one token, with the end of sentence first."""
        inputs = targets.roll(1, dims=1)
        inputs[:, 0] = self.EOS
        return inputs.masked_fill_(targets.eq(self.PAD), self.PAD)

    def hand_out(self, batches, model, package):
        """Yield each batch after a line on stdin, and report the seconds until the next batch is requested."""
        self.ready(model, package)
        for batch in batches:
            self.wait()
            began = time.perf_counter()
            yield batch
            self.stepped(time.perf_counter() - began)
        self.wait()

    def ready(self, model, package):
        """Send the first report: the number of trained parameters and the version of the toolkit's package."""
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._steps, self._before = 0, [parameter.detach().clone() for parameter in self._parameters]
        self._report(
            parameters=sum(map(torch.numel, self._parameters)), version=f"{package} {metadata.version(package)}"
        )

    def wait(self):
        """Wait for a line on stdin. At its end, exit at once, before the toolkit saves, validates or reports."""
        if not sys.stdin.readline():
            os._exit(0)

    def stepped(self, seconds):
        """Send the report of a step. That of the second step has the number of changed parameters; the first has a learning rate of 0."""
        self._steps += 1
        if self._steps == 2:
            moved = sum(int(old.ne(new).sum()) for old, new in zip(self._before, self._parameters, strict=True))
            self._before.clear()
            self._report(seconds=seconds, moved=moved)
        else:
            self._report(seconds=seconds)

    def _report(self, **facts):
        print(json.dumps(facts), file=self._reports, flush=True)
