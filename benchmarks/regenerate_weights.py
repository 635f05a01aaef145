"""Memory and speed of translating with --regenerate-weights, against masks folded into the weights.

Arms and batches are those of ``generation_time``; the first arm is the baseline. Beside the ratio of seconds:

weights: MiB of the tensors that the model holds when it is ready, without the table of sinusoidal positions;
resident: MiB by which the process grew when it made the model ready, less what it has given back;
peak: the same at its highest, when the scores were there too, translation included.

Memory is that of a process of its own for every arm, and needs Linux.

  python benchmarks/regenerate_weights.py
  python benchmarks/regenerate_weights.py --max-tokens 20 --arm "folded: --arch ..." --arm "bits: --arch ... --regenerate-weights"
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from fairseq.modules import SinusoidalPositionalEmbedding

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
    *((f"{what}, MiB", what, ".1f") for what in ("weights", "resident", "peak")),
]


def weights_of(model):
    """MiB of a model's tensors, each storage once."""
    positions = {id(m.weights) for m in model.modules() if isinstance(m, SinusoidalPositionalEmbedding)}
    tensors = [t for t in (*model.parameters(), *model.buffers()) if id(t) not in positions]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()) / 2**20


def memory_of(name, flags, words):
    """What ``print_memory`` prints in a process of its own, in which freed memory goes back to the system at once."""
    command = [sys.executable, __file__, *words, "--only", f"{name}: {flags}"]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def print_memory(name, flags, given):
    before = _status("VmRSS")
    arm = Arm(name, flags, given)
    found = {"weights": weights_of(arm.models[0]), "resident": _status("VmRSS") - before}
    arm.step()
    print(json.dumps(found | {"peak": _status("VmHWM") - before}))


def _status(field):
    """MiB of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def read_arguments(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "regenerate_weights", pairs=20)
    pairs.add_arms(parser, at_most=1.0)
    parser.add_argument("--max-tokens", type=int, default=400, help="source tokens of the batch (default 400)")
    parser.add_argument("--beam", type=int, default=5, help="default 5")
    parser.add_argument("--only", type=pairs.name_and_flags, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.arm is None:
        given.arm = list(map(pairs.name_and_flags, DEFAULT_ARMS))
    pairs.check_arms(parser, given, ("pairs", "length", "max_tokens", "beam", "words"))
    return given


def main(words=None):
    words = sys.argv[1:] if words is None else list(map(str, words))
    given = read_arguments(words)
    models.import_plugin(given.threads)
    if given.only:
        return print_memory(*given.only, given)
    found = pairs.measure([Arm(name, flags, given) for name, flags in given.arm], given.pairs, given.warm_up)
    found = [result | memory_of(*arm, words) for result, arm in zip(found, given.arm)]
    batch = f"{models.sentences_of(given)} sentences of {given.length} tokens, beam {given.beam}, hypotheses of {given.length} tokens"
    facts = pairs.surroundings(given.device, given.pairs) | {"batch": batch, "words": given.words}
    result = {"surroundings": facts, "arms": found}
    if given.promise:
        result["promise"] = pairs.check_promise(found, given.promise, given.at_most)
    how = f"Batch: {batch}; {given.words:,} words."
    pairs.write(given.output, result, pairs.markdown(result, COLUMNS, how))
    return result


if __name__ == "__main__":
    result = main()
    sys.exit(0 if (result or {}).get("promise", {"holds": True})["holds"] else 1)
