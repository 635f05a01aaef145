"""fairseq-train, its own command, its own batches; and the first of these written down for the others.

  python fairseq_steps.py JOB DATA FLAGS...              a step for every line on stdin, see ``steps``
  python fairseq_steps.py --write N FILE DATA FLAGS...   writes N batches and the number of words as JSON, and ends

The clock runs through ``Trainer.train_step``, not while fairseq makes the next batch: the other toolkits get theirs made.
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
    """Rows of ids without padding, on whichever side it is."""
    return [row[row.ne(pad)].tolist() for row in tokens]


def pairs_of(sample, pad):
    """A batch as it is written: for each pair of sentences their ids."""
    return list(
        map(list, zip(sentences(sample["net_input"]["src_tokens"], pad), sentences(sample["target"], pad), strict=True))
    )


class Writing:
    """A mix-in for a trainer. Writes down the batches that it is given and trains nothing."""

    count, path, batches = 0, "", []

    def train_step(self, samples, *rest, **named):
        dictionary = self.task.target_dictionary
        self.batches.append(pairs_of(samples[0], dictionary.pad()))
        if len(self.batches) == self.count:
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump({"words": len(dictionary), "batches": self.batches}, file)
            os._exit(0)


class Timed:
    """A mix-in for a trainer. Trains a step when it is told to, on a batch that must be the one in the file."""

    job, expected = None, None

    def train_step(self, samples, *rest, **named):
        if self.expected is None:
            self.expected = iter(self.job.batches)
            self.job.ready(self.model, "fairseq-fixed")
        if pairs_of(samples[0], self.task.target_dictionary.pad()) != next(self.expected, None):
            sys.exit("fairseq_steps: another batch than in the file")
        self.job.wait()
        began = time.perf_counter()
        result = super().train_step(samples, *rest, **named)
        self.job.stepped(time.perf_counter() - began)
        return result


def main(arguments):
    if arguments[0] == "--write":
        Writing.count, Writing.path, words, part = int(arguments[1]), arguments[2], arguments[3:], Writing
    else:
        Timed.job, words, part = Job(arguments[0]), arguments[1:], Timed
    if "--user-dir" in words:  # the plugin has a trainer of its own
        utils.import_user_module(Namespace(user_dir=words[words.index("--user-dir") + 1]))
    fairseq_cli.train.Trainer = type("Trainer", (part, fairseq_cli.train.Trainer), {})
    sys.argv[1:] = words
    fairseq_cli.train.cli_main()


if __name__ == "__main__":
    main(sys.argv[1:])
