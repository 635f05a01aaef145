"""Time fairseq-generate with and without --cuda-graphs in one process, in interleaved pairs, and compare the hypotheses.

A model is trained for some seconds on synthetic sentences with lengths similar to Multi30k's. The target of a sentence has one token
for each source token. Then both arms run fairseq-generate's own ``main`` on a test set: same checkpoint, same batches, same output.
The length of hypotheses is limited to 1.1 times that of the source plus 3, so that it is realistic without a long training.

  python benchmarks/generation_graphs.py --device cuda
  python benchmarks/generation_graphs.py --device cuda --data .gpu/bin --path checkpoint_best.pt --flags="--remove-bpe sentencepiece"
  python benchmarks/generation_graphs.py --tiny

``seconds`` are those from the first batch to the end of the output. ``search`` is fairseq's own measurement without the output.
``pairs`` describes the comparison. On a CPU the second arm runs the same steps without graphs.
"""

import argparse
import contextlib
import io
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import models, pairs  # noqa: E402

PROMISED_RATIO = 0.3
SHAPE = (
    "--arch reservoir_transformer --encoder-embed-dim {width} --encoder-ffn-embed-dim {ffn} --encoder-attention-heads {heads}"
    " --decoder-attention-heads {heads} --encoder-layers {encoder} --decoder-layers {decoder} --share-all-embeddings"
)
TRAINING = (
    "-s en -t de --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --lr 2e-3 --clip-norm 1.0"
    " --lr-scheduler inverse_sqrt --warmup-updates 100 --max-tokens 4096 --disable-validation --no-epoch-checkpoints"
    " --no-progress-bar --log-format none --fast"
)
SIZES = {"width": 256, "ffn": 1024, "heads": 4, "encoder": 4, "decoder": 2}
TINY = {"width": 16, "ffn": 24, "heads": 2, "encoder": 1, "decoder": 1}


class Arm:
    """A fairseq-generate command.

    Args:
        name: name in the table.
        flags: its flags.
        words: the whole command line.
    """

    def __init__(self, name, flags, words):
        self.name, self.flags, self.words = name, flags, words
        self.searches, self.hypotheses = [], {}

    @property
    def facts(self):
        tokens = [len(text.split()) for text, _ in self.hypotheses.values()]
        return {"search": float(np.median(self.searches[-3:])), "tokens per hypothesis": float(np.mean(tokens))}

    def step(self):
        """Translate the test set. Return the seconds from the first batch to the end."""
        from fairseq import options
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.logging.meters import StopwatchMeter
        from fairseq_cli import generate

        timers = []

        class Timer(StopwatchMeter):
            def __init__(self):
                super().__init__()
                timers.append(self)
                self.first = None

            def start(self):
                self.first = self.first or time.perf_counter()
                super().start()

        parsed = options.parse_args_and_arch(options.get_generation_parser(), self.words)
        printed = io.StringIO()
        with patch.object(generate, "StopwatchMeter", Timer), contextlib.redirect_stdout(printed):
            generate.main(convert_namespace_to_omegaconf(parsed))
        ended = time.perf_counter()
        self.searches.append(timers[0].sum)
        self.hypotheses = read(printed.getvalue())
        return ended - timers[0].first


def read(printed):
    """Map each sentence number to the text and the score of its best hypothesis."""
    rows = [line.split("\t") for line in printed.split("\n") if line.startswith("H-")]
    return {int(number[2:]): (text, float(score)) for number, score, text in rows}


def differences(theirs, ours):
    """Number of sentences with other texts, and the largest difference of the scores of equal texts."""
    same = [number for number in theirs if theirs[number][0] == ours[number][0]]
    return {
        "sentences": len(theirs),
        "different": len(theirs) - len(same),
        "largest difference of scores": max((abs(theirs[i][1] - ours[i][1]) for i in same), default=0.0),
    }


def write_split(folder, split, sentences, words, seed):
    """Write sentence pairs of a split as fairseq-preprocess does. The target has one fixed token for each source token."""
    from fairseq.data import Dictionary, indexed_dataset

    dictionary = Dictionary()
    for i in range(words - dictionary.nspecial):
        dictionary.add_symbol(f"word{i}")
    draw, first = np.random.default_rng(seed), dictionary.nspecial
    lengths = draw.normal(14, 4.5, sentences).round().clip(3, 40).astype(int)
    weights = 1 / (np.arange(words - first) + 10)
    source = draw.choice(len(weights), size=lengths.sum(), p=weights / weights.sum())
    target = np.random.default_rng(0).permutation(len(weights))[source]
    for language, tokens in (("en", source), ("de", target)):
        dictionary.save(str(folder / f"dict.{language}.txt"))
        prefix = str(folder / f"{split}.en-de.{language}")
        builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=words)
        for sentence in np.split(first + tokens, np.cumsum(lengths)[:-1]):
            builder.add_item(torch.from_numpy(np.append(sentence, dictionary.eos())))
        builder.finalize(f"{prefix}.idx")


def train(folder, given):
    """Write a corpus and train a model. Return the path of its checkpoint."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq_cli import train as fairseq_train

    write_split(folder, "train", given.train_sentences, given.words, seed=1)
    write_split(folder, "test", given.sentences, given.words, seed=2)
    sizes = SHAPE.format(**(TINY if given.tiny else SIZES))
    words = [
        str(folder),
        *shlex.split(f"{sizes} {TRAINING}"),
        "--max-update",
        str(given.updates),
        "--seed",
        str(given.seed),
    ]
    words += ["--save-dir", str(folder), *device_flags(given)]
    parsed = options.parse_args_and_arch(options.get_training_parser(), words)
    fairseq_train.main(convert_namespace_to_omegaconf(parsed))
    return folder / "checkpoint_last.pt"


def device_flags(given):
    return ["--cpu"] if given.device == "cpu" else []


def arms_of(given, data, path):
    """Both arms; fairseq's own search is the baseline."""
    words = [str(data), "--path", str(path), "--beam", str(given.beam), "--batch-size", str(given.batch_size)]
    words += [
        "--gen-subset",
        "test",
        "--max-len-a",
        "1.1",
        "--max-len-b",
        "3",
        "--no-progress-bar",
        *device_flags(given),
    ]
    words += [] if given.precision == "fp32" else [f"--{given.precision}"]
    words += shlex.split(given.flags)
    return [Arm("fairseq", "", words), Arm("graphs", "--cuda-graphs", [*words, "--cuda-graphs"])]


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "generation_graphs", pairs=3)
    parser.set_defaults(warm_up=1)
    parser.add_argument("--data", type=Path, help="binarised corpus with a test set (default: a synthetic one)")
    parser.add_argument("--path", type=Path, help="checkpoint of a model of --data (default: train one)")
    parser.add_argument("--flags", default="", help="further flags of fairseq-generate")
    parser.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
    parser.add_argument("--beam", type=int, default=5, help="default 5")
    parser.add_argument("--batch-size", type=int, default=128, help="sentences per batch (default 128)")
    parser.add_argument("--sentences", type=int, default=1000, help="of the synthetic test set (default 1000)")
    parser.add_argument("--train-sentences", type=int, default=20_000, help="default 20000")
    parser.add_argument("--updates", type=int, default=300, help="of the training (default 300)")
    parser.add_argument("--words", type=int, default=6000, help="size of the joint dictionary (default 6000)")
    parser.add_argument("--at-most", type=float, default=PROMISED_RATIO, help=f"default {PROMISED_RATIO}")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, to try the script")
    given = parser.parse_args(arguments)
    if (given.data is None) != (given.path is None):
        parser.error("--data and --path: give both or none")
    if given.tiny:
        given.sentences, given.train_sentences, given.updates, given.words = 12, 40, 2, 40
        given.batch_size, given.pairs = 5, 1
    pairs.check_positive(parser, given, ("pairs", "beam", "batch_size", "sentences", "train_sentences", "updates"))
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    models.import_plugin(given.threads)
    from fairseq_reservoir.options.command_options import GENERATION_GRAPHS, ON_CPU

    recorder = {GENERATION_GRAPHS: ON_CPU} if given.device == "cpu" else {}
    with tempfile.TemporaryDirectory() as folder:
        data, path = (given.data, given.path) if given.data else (Path(folder), train(Path(folder), given))
        arms = arms_of(given, data, path)
        usual_step = arms[1].step

        def step():
            with patch.dict(os.environ, recorder):
                return usual_step()

        arms[1].step = step
        found = pairs.measure(arms, given.pairs, given.warm_up)
    compared = differences(arms[0].hypotheses, arms[1].hypotheses)
    facts = pairs.surroundings(given.device, given.pairs) | compared | {"precision": given.precision}
    result = {"surroundings": facts, "arms": found}
    result["promise"] = pairs.check_promise(found, "graphs", given.at_most)
    result["promise of the search"] = found[1]["search"] / found[0]["search"]
    how = (
        f"fairseq-generate with {given.precision}, beam {given.beam}, {given.batch_size} sentences per batch. Of"
        f" {compared['sentences']:,} sentences, {compared['different']} have another translation. The search alone took"
        f" {result['promise of the search']:.3f} of fairseq's time."
    )
    columns = [("seconds", "seconds", ".2f"), ("search", "search", ".2f"), ("tokens", "tokens per hypothesis", ".1f")]
    pairs.write(given.output, result, pairs.markdown(result, columns, how))
    return result


if __name__ == "__main__":
    result = main()
    sys.exit(0 if result["promise"]["holds"] else 1)
