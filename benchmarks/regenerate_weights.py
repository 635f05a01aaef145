"""Memory and speed of translation and scoring with --regenerate-weights, compared with the stored model.

Arms and batches are those of ``generation_time``. A language model scores the batch by fairseq's SequenceScorer, as in fairseq-eval-lm.
The first arm is the baseline. Columns other than the ratio of seconds:

weights: MiB of the model's tensors when it is ready, without the table of sinusoidal positions;
resident: growth of the process's resident memory in MiB until the model is ready;
peak: peak growth in MiB from the start, which includes building the model;
running: peak growth in MiB once the model is ready.

Memory is measured in a separate process for each arm. It needs Linux.

  python benchmarks/regenerate_weights.py
  python benchmarks/regenerate_weights.py --arm "stored: --arch reservoir_transformer_iwslt_de_en --reservoir-encoder LTTTTL"
      --arm "drawn: --arch reservoir_transformer_iwslt_de_en --reservoir-encoder LTTTTL --regenerate-weights"
  python benchmarks/regenerate_weights.py --max-tokens 20 --arm "folded: --arch ..." --arm "bits: --arch ... --regenerate-weights"
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from fairseq import utils
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.sequence_scorer import SequenceScorer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import models, pairs  # noqa: E402
from benchmarks.generation_time import Arm  # noqa: E402

ARCH = "--arch supermask_one_layer_transformer_iwslt_de_en"
DEFAULT_ARMS = (
    f"folded: {ARCH}",
    f"regenerated signed_constant: {ARCH} --regenerate-weights",
    f"regenerated kaiming_uniform: {ARCH} --regenerate-weights --mask-init-weights kaiming_uniform",
)
COLUMNS = [
    ("seconds per batch", "seconds", ".3f"),
    *((f"{what}, MiB", what, ".1f") for what in ("weights", "resident", "peak", "running")),
]


class Scoring:
    """A language model that scores a batch, as in fairseq-eval-lm. The arguments are those of ``Arm``."""

    def __init__(self, name, flags, shape):
        self.name, self.flags, self.clock = name, flags, pairs.clock_of(shape)
        cfg, task, model = models.build(flags, shape)
        model.prepare_for_inference_(cfg)
        self.models = [model.to(shape.device)]
        self.scorer = SequenceScorer(task.target_dictionary)
        batch = models.language_model_batch(task.target_dictionary, shape)
        self.batch = utils.apply_to_sample(lambda tensor: tensor.to(shape.device), batch)

    def step(self):
        """Score the batch. Return its seconds."""
        started = self.clock()
        self.scorer.generate(self.models, self.batch)
        return self.clock() - started


def arm_of(name, flags, shape):
    return (Scoring if models.is_language_model(flags) else Arm)(name, flags, shape)


def weights_of(model):
    """MiB of a model's tensors. Shared storage counts once."""
    positions = {id(m.weights) for m in model.modules() if isinstance(m, SinusoidalPositionalEmbedding)}
    tensors = [t for t in (*model.parameters(), *model.buffers()) if id(t) not in positions]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()) / 2**20


def memory_of(name, flags, arguments):
    """Run ``print_memory`` in a new process that returns freed memory to the system at once. Return its output."""
    command = [sys.executable, __file__, *arguments, "--only", f"{name}: {flags}"]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def print_memory(name, flags, given):
    before = _status("VmRSS")
    arm = arm_of(name, flags, given)
    found = {"weights": weights_of(arm.models[0]), "resident": _status("VmRSS") - before}
    built = _status("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to the present size
    arm.step()
    running = _status("VmHWM")
    print(json.dumps(found | {"peak": max(built, running) - before, "running": running - before}))


def _status(field):
    """A memory field of /proc/self/status in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "regenerate_weights", pairs=20)
    pairs.add_arms(parser, at_most=1.0)
    parser.add_argument("--max-tokens", type=int, default=400, help="source tokens of the batch (default 400)")
    parser.add_argument("--beam", type=int, default=5, help="default 5")
    parser.add_argument("--only", type=pairs.name_and_flags, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.arm is None:
        given.arm = list(map(pairs.name_and_flags, DEFAULT_ARMS))
    pairs.check_arms(parser, given, ("pairs", "length", "max_tokens", "beam", "words"))
    return given


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else list(map(str, arguments))
    given = read_arguments(arguments)
    models.import_plugin(given.threads)
    if given.only:
        return print_memory(*given.only, given)
    found = pairs.measure([arm_of(name, flags, given) for name, flags in given.arm], given.pairs, given.warm_up)
    found = [result | memory_of(*arm, arguments) for result, arm in zip(found, given.arm)]
    batch = f"{models.sentences_of(given)} sentences of {given.length} tokens"
    if not all(models.is_language_model(flags) for _, flags in given.arm):
        batch += f", beam {given.beam}, hypotheses of {given.length} tokens"
    facts = pairs.surroundings(given.device, given.pairs) | {"batch": batch, "words": given.words}
    result = {"surroundings": facts, "arms": found}
    if given.promise:
        result["promise"] = pairs.check_promise(found, given.promise, given.at_most)
    how = f"The batch has {batch}. The dictionary has {given.words:,} words.{pairs.about_clock(given)}"
    pairs.write(given.output, result, pairs.markdown(result, COLUMNS, how))
    return result


if __name__ == "__main__":
    result = main()
    sys.exit(0 if (result or {}).get("promise", {"holds": True})["holds"] else 1)
