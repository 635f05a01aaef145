"""Time and memory saved by freezing a third or a half of six encoder layers, at two widths.

The arms have alternating reservoirs: frozen Transformer layers (T), frozen feed-forward layers (F) and trained feed-forward layers
(f). T is also timed with frozen weights in bf16, with backskipping in every update, with the fast dropout and loss, and with all
three. Plain models with bf16 and with the fast dropout and loss are timed too, because these work without frozen layers. All models
have two decoder layers.

  python benchmarks/frozen_arms.py
  python benchmarks/frozen_arms.py --size 256/1024 --pairs 10 --figure frozen_arms.pdf

Freezing can only save matrix products. The table therefore predicts a ratio of times from their share of the plain model's step
(``step_profile``) and from the ratio of FLOPs. It also has the part of the predicted saving that T reached.
"""

import argparse
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import figure, models, pairs, step_profile, step_time  # noqa: E402
from fairseq_reservoir.plan.layer_plan import plan_by_count  # noqa: E402

ENCODER_LAYERS, DECODER_LAYERS = 6, 2
SIZES = {
    f"{width}/{ffn}": f"--encoder-embed-dim {width} --encoder-ffn-embed-dim {ffn} --encoder-attention-heads 4 --decoder-attention-heads 4"
    for width, ffn in ((256, 1024), (512, 1024))
}
RESERVOIRS = {"a third": 2, "a half": 3}
FAST = "--reservoir-fast-dropout --criterion fused_label_smoothed_cross_entropy"
LESS_WORK = {
    "frozen bf16": "--frozen-dtype bf16",
    "backskip": "--backskip synthetic --backskip-warmup 0 --backskip-anneal 0",
    "fast": FAST,
}
LESS_WORK["all three"] = " ".join(LESS_WORK.values())
COLUMNS = (("predicted ratio", "predicted", ".3f"), *step_time.COLUMNS)


def arms_of(size):
    """Arms of a size as pairs (name, flags), the plain model first."""
    plain = f"--arch transformer {SIZES[size]} --encoder-layers {ENCODER_LAYERS} --decoder-layers {DECODER_LAYERS}"
    ours = f"--arch reservoir_transformer {SIZES[size]} --decoder-layers {DECODER_LAYERS} --reservoir-encoder"
    arms = [("plain", plain), ("plain, bf16", f"{plain} --bf16"), ("plain, fast", f"{ours} {ENCODER_LAYERS}L {FAST}")]
    for share, count in RESERVOIRS.items():
        plan = plan_by_count(ENCODER_LAYERS, count, "transformer", "alternate")
        arms += [(f"{letter}, {share}", f"{ours} {plan.replace('T', letter)}") for letter in "TFf"]
        arms += [(f"T, {share}, {name}", f"{ours} {plan} {flags}") for name, flags in LESS_WORK.items()]
    return arms


def predicted(flop_ratio, share):
    """Predicted ratio of times, ``1 - share (1 - flop_ratio)``.

    Matrix products take a ``share`` of the plain step. Their time is multiplied by ``flop_ratio``, and the rest stays the same.
    """
    return 1 - share * (1 - flop_ratio)


def reached(found):
    """Sentences about each T without further options: its measured and predicted saving."""
    names = [f"T, {share}" for share in RESERVOIRS]
    arms = [arm for arm in found if arm["arm"] in names and "absent" not in arm]
    return [
        f"`{a['arm']}` saves {1 - a['ratio']:.3f} of the time."
        f" This is {(1 - a['ratio']) / (1 - a['predicted']):.2f} of the predicted saving, {1 - a['predicted']:.3f}."
        for a in arms
    ]


def measure(size, given):
    """Time the arms of one size. Return their results and the share of matrix products in the plain step."""
    (name, flags), *others = arms_of(size)
    plain = step_time.build(name, flags, given)
    if isinstance(plain, pairs.Absent):
        sys.exit(f"frozen_arms: --size {size}: {plain.reason}")
    share = step_profile.profile_of(plain, given.profile_steps, warm_up=1)["shares"]["matrix products"]
    found = step_time.measure(itertools.chain([plain], (step_time.build(*arm, given) for arm in others)), given)
    for arm in found:
        if "absent" in arm:
            continue
        arm["predicted"] = predicted(arm["flop_ratio"], share)
    return {"matrix_products": share, "arms": found}


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", choices=SIZES, help="repeat (default: all)")
    parser.add_argument(
        "--profile-steps", type=int, default=3, help="steps of the plain model that are profiled (default 3)"
    )
    pairs.add_arguments(parser, "frozen_arms", pairs=20)
    pairs.add_shape(parser)
    step_time.add_arguments(parser)
    given = parser.parse_args(arguments)
    pairs.check_positive(parser, given, ("pairs", "profile_steps", "length", "max_tokens", "words"))
    given.size = given.size or list(SIZES)
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    models.import_plugin(given.threads)
    sizes = {size: measure(size, given) for size in given.size}
    facts, how = step_time.facts_of(given, [arm["flags"] for found in sizes.values() for arm in found["arms"]])
    result = {"surroundings": facts, "sizes": sizes}
    lines = []
    for size, found in sizes.items():
        lines += [f"## {size}", "", *pairs.table(found["arms"], COLUMNS), ""]
        lines += [
            f"Matrix products take {found['matrix_products']:.1%} of the plain step. {' '.join(reached(found['arms']))}",
            "",
        ]
    lines += [pairs.how_measured(facts), how, ""]
    lines += [f"    {arm['arm']}: {arm['flags']}" for found in sizes.values() for arm in found["arms"]]
    pairs.write(given.output, result, "\n".join(lines) + "\n")
    if given.figure:
        figure.draw(given.figure, {size: found["arms"] for size, found in sizes.items()}, pairs.how_measured(facts))
    return result


if __name__ == "__main__":
    main()
