"""Worker of fairseq-train with its own batches. It also writes the first batches for the other toolkits.

  python fairseq_steps.py JOB DATA FLAGS...              one step for each line on stdin, see ``steps``
  python fairseq_steps.py --write N FILE DATA FLAGS...   write N batches and the size of the dictionary as JSON, and end

Only ``Trainer.train_step`` is timed. Making the next batch is not, because the other toolkits get finished batches.
"""

import json
import os
import sys
import time
from argparse import Namespace

import fairseq_cli.train
from fairseq import utils
from steps import Job


def sentences(tokens, pad):
    """Rows of token ids without padding on either side."""
    return [row[row.ne(pad)].tolist() for row in tokens]


def pairs_of(sample, pad):
    """Convert a batch to the format of the file: a list of sentence pairs as token ids."""
    return list(
        map(list, zip(sentences(sample["net_input"]["src_tokens"], pad), sentences(sample["target"], pad), strict=True))
    )


class Writing:
    """Trainer mix-in that writes its batches to a file and does not train."""

    count, path, batches = 0, "", []

    def train_step(self, samples, *rest, **named):
        dictionary = self.task.target_dictionary
        self.batches.append(pairs_of(samples[0], dictionary.pad()))
        if len(self.batches) == self.count:
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump({"words": len(dictionary), "batches": self.batches}, file)
            os._exit(0)


class Timed:
    """Trainer mix-in that trains one step on request. Each batch must equal the one in the file."""

    job, expected = None, None

    def train_step(self, samples, *rest, **named):
        if self.expected is None:
            self.expected = iter(self.job.batches)
            self.job.ready(self.model, "fairseq-fixed")
        if pairs_of(samples[0], self.task.target_dictionary.pad()) != next(self.expected, None):
            sys.exit("fairseq_steps: the batch differs from the one in the file")
        self.job.wait()
        began = time.perf_counter()
        result = super().train_step(samples, *rest, **named)
        self.job.stepped(time.perf_counter() - began)
        return result


def main(arguments):
    if arguments[0] == "--write":
        Writing.count, Writing.path, flags, mix_in = int(arguments[1]), arguments[2], arguments[3:], Writing
    else:
        Timed.job, flags, mix_in = Job(arguments[0]), arguments[1:], Timed
    if "--user-dir" in flags:  # the plugin has its own trainer
        utils.import_user_module(Namespace(user_dir=flags[flags.index("--user-dir") + 1]))
    fairseq_cli.train.Trainer = type("Trainer", (mix_in, fairseq_cli.train.Trainer), {})
    sys.argv[1:] = flags
    fairseq_cli.train.cli_main()


if __name__ == "__main__":
    main(sys.argv[1:])
