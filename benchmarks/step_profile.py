"""Shares of a training step's time: matrix products, dropout, loss, optimizer and other operations.

Groups torch's profile of fairseq's ``Trainer.train_step`` by kind of operation. It uses self time, so that the shares add up to 1.
"outside torch" is the time without a torch operation: Python, fairseq and waiting.

  python benchmarks/step_profile.py
  python benchmarks/step_profile.py --arm "T: --arch reservoir_transformer_study --reservoir-encoder LTLTL"
"""

import argparse
import re
import sys
import time
from pathlib import Path

from torch.profiler import ProfilerActivity, profile, record_function

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import models, pairs  # noqa: E402
from benchmarks.step_time import Arm  # noqa: E402

SHAPE = "--encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4 --decoder-attention-heads 4 --decoder-layers 2"
PLAN = f"--arch reservoir_transformer {SHAPE} --reservoir-encoder"
FAST = "--reservoir-fast-dropout --criterion fused_label_smoothed_cross_entropy"
DEFAULT_ARMS = (
    f"plain: --arch transformer --encoder-layers 4 {SHAPE}",
    f"T: {PLAN} LTTL",
    f"T, fast: {PLAN} LTTL {FAST}",
)
# The first pattern that matches the name of an operation gives its kind.
KINDS = (
    ("matrix products", r"mm$|addmm|bmm|matmul|linear|mkldnn_linear|scaled_dot_product|flash|efficient_attention"),
    ("dropout", r"dropout|bernoulli|FastDropout"),
    ("loss", r"log_softmax|LabelSmoothing|nll_loss|gather|scatter"),
    ("softmax of attention", r"softmax"),
    ("LayerNorm", r"layer_norm"),
    ("optimizer", r"Optimizer|_foreach|addcdiv|addcmul|sqrt|lerp|clip_grad|linalg_vector_norm|fused_adam"),
    ("embeddings", r"embedding|index_select|index_add"),
    ("activations", r"relu|gelu|threshold"),
)


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), "other operations")


def shares(events, seconds: float) -> dict[str, float]:
    """Share of the time of each kind, largest first.

    Args:
        events: pairs (name of an operation, its self time in seconds).
        seconds: total time of all steps.
    """
    found = {}
    for name, own in events:
        found[kind_of(name)] = found.get(kind_of(name), 0.0) + own / seconds
    found["outside torch"] = max(0.0, 1 - sum(found.values()))
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def profile_of(arm, steps: int, warm_up: int) -> dict:
    """Seconds of a step and the share of each kind. A fused loss or dropout counts as one operation."""
    for _ in range(warm_up):
        arm.step()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * arm.trainer.cuda
    with profile(activities=activities) as profiled:
        started = time.perf_counter()
        for _ in range(steps):
            with record_function("step"):
                arm.step()
        seconds = time.perf_counter() - started
    on_device = "self_device_time_total" if arm.trainer.cuda else "self_cpu_time_total"
    events = [(e.key, getattr(e, on_device) / 1e6) for e in profiled.key_averages() if e.key != "step"]
    return {"seconds": seconds / steps, "shares": shares(_fold(profiled, events, on_device), seconds)}


def _fold(profiled, events, attribute):
    """Assign the time of operations inside our autograd functions to these functions."""
    moved = dict(events)
    for event in profiled.events():
        owner = event
        while owner is not None and not re.search(r"LabelSmoothing|FastDropout", owner.name):
            owner = owner.cpu_parent
        if owner is not None and owner is not event:
            own = getattr(event, attribute) / 1e6
            moved[event.name] = moved.get(event.name, 0.0) - own
            moved[owner.name] = moved.get(owner.name, 0.0) + own
    return moved.items()


def markdown(result) -> str:
    """Table with one column per arm, sorted by the largest share."""
    arms, facts = result["arms"], result["surroundings"]
    largest = {}
    for kind, share in (item for arm in arms.values() for item in arm["shares"].items()):
        largest[kind] = max(share, largest.get(kind, 0))
    lines = ["| share of a step | " + " | ".join(arms) + " |", "|---" * (1 + len(arms)) + "|"]
    for kind in sorted(largest, key=largest.get, reverse=True):
        lines.append(f"| {kind} | " + " | ".join(f"{arm['shares'].get(kind, 0):.1%}" for arm in arms.values()) + " |")
    how = (
        f"Each arm was profiled for {facts['steps']} steps of {facts['batch']}. The times include the profiler's overhead.\n"
        f"Measured at commit {facts['commit']} with torch {facts['torch']},"
        f" on {facts['device']} with {facts['threads']} of {facts['cores']} CPU threads."
    )
    lines += ["", how, ""]
    return "\n".join(lines + [f"    {name}: {arm['flags']}" for name, arm in arms.items()]) + "\n"


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="profiled steps per arm (default 5)")
    pairs.add_run(parser, "step_profile", warm_up=2)
    pairs.add_models(parser)
    parser.add_argument("--max-tokens", type=int, default=4096, help="tokens of a batch on either side (default 4096)")
    given = parser.parse_args(arguments)
    pairs.check_positive(parser, given, ("steps", "length", "max_tokens", "words"))
    given.arm = given.arm or list(map(pairs.name_and_flags, DEFAULT_ARMS))
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    models.import_plugin(given.threads)
    found = {
        name: profile_of(Arm(name, flags, given), given.steps, given.warm_up) | {"flags": flags}
        for name, flags in given.arm
    }
    facts = pairs.surroundings(given.device, None) | {"steps": given.steps}
    facts["batch"] = (
        f"{models.sentences_of(given)} sentences of {given.length} tokens on either side, from a dictionary of {given.words:,} words"
    )
    result = {"surroundings": facts, "arms": found}
    pairs.write(given.output, result, markdown(result))
    return result


if __name__ == "__main__":
    main()
