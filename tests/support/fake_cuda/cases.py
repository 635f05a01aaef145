"""Trainings for the fake device, each with the plain training of fairseq to compare with."""

from dataclasses import dataclass

from fairseq_reservoir.masks.levels import KINDS
from tests.support.letters import LETTERS, WITH_EVERY_KIND

from .plants import PLANTS

_ENCODER = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --encoder-attention-heads 2"
_DECODER = "--decoder-embed-dim 8 --decoder-ffn-embed-dim 12 --decoder-attention-heads 2"
_RUN = "--lr 0.01 --clip-norm 1 --dropout 0.1"
_SMOOTHED = "--criterion label_smoothed_cross_entropy --label-smoothing 0.1"
_TASKS = {
    "translation": f"--task translation -s en -t de {_ENCODER} {_DECODER} {_SMOOTHED} {_RUN}",
    "language model": f"--task language_modeling --tokens-per-sample 8 {_DECODER} {_RUN}",
    "RoBERTa": f"--task masked_lm --criterion masked_lm --tokens-per-sample 8 {_ENCODER} {_RUN}",
}
# fairseq's model to compare with, without flags of depth and precision.
_PLAIN = {
    "translation": "--arch transformer",
    "language model": "--arch transformer_lm",
    "RoBERTa": "--arch roberta_base",
    "lightconv": "--arch lightconv --encoder-kernel-size-list [3] --decoder-kernel-size-list [3] --encoder-glu 1 --decoder-glu 1",
}
PRECISIONS = {
    "fp32": "",
    "fp16": "--fp16",
    "fp16, less memory": "--fp16 --memory-efficient-fp16",
    "amp": "--amp",
    "bf16": "--bf16",
}


@dataclass(frozen=True)
class Case:
    """A training. ``ours`` and fairseq's ``plain`` training are given by their flags.

    ``plain.format(depth=...)`` has a given number of encoder layers. ``depth`` is the number in ours. ``plant`` is the name of a
    mistake in ``plants`` that is made in ours, if any. ``recorded``: whether steps of ours are recorded for --cuda-graphs. With
    ``--fast``, an update may read the device ``at_most`` times, at any line.
    """

    group: str
    name: str
    ours: str
    plain: str
    depth: int = 1
    updates: int = 1
    plant: str | None = None
    recorded: bool = False
    at_most: int | None = None


_RECORDED = {"optimizer": "adam", "updates": 5, "recorded": True}
# Reads of an update with --fast. torch's scaler of --amp reads twice, fairseq's wrapper of it once.
_FAST_READS = {"amp": 4}


def _case(
    group,
    name,
    ours,
    task="translation",
    plain=None,
    precision="fp32",
    optimizer="sgd",
    depth=1,
    updates=1,
    plant=None,
    recorded=False,
):
    """Create a case. ``depth`` is that of the encoder, because fairseq reads a value in each encoder layer."""
    further = f"{_TASKS[task]} --optimizer {optimizer} {PRECISIONS[precision]}"
    # Flags are code in the table; the precision is not.
    name = f"`{name}`" if name.startswith("--") else name
    name = name if precision == "fp32" else f"{name}, {precision}"
    theirs = f"{plain_of(plain or task, '{depth}')} {further}"
    at_most = _FAST_READS.get(precision, 2) if "--fast" in ours.split() else None
    return Case(group, name, f"{ours} {further}", theirs, depth, updates, plant, recorded, at_most)


def plain_of(which, depth=1):
    """Flags of fairseq's own model."""
    encoder = "" if which == "language model" else f"--encoder-layers {depth}"
    return f"{_PLAIN[which]} {encoder} {'' if which == 'RoBERTa' else '--decoder-layers 1'}"


def _plan(group, name, encoder="L", decoder="L", more="", **how):
    words = f"--arch reservoir_transformer --reservoir-encoder {encoder} --reservoir-decoder {decoder} {more}"
    return _case(group, name, words, depth=len(encoder), **how)


def _masked(more="", layers=1):
    depth = f"--encoder-layers {layers} --decoder-layers 1"
    return f"--arch supermask_one_layer_transformer {depth} --share-decoder-input-output-embed {more}"


def _backskip(estimator):
    return f"--backskip {estimator} --backskip-warmup 1 --backskip-anneal 0"


def _layers():
    group = "layers"
    yield _plan(group, "every letter", "".join(LETTERS["encoder"]), "".join(LETTERS["decoder"]))
    yield _plan(group, "backskip synthetic", "LTF", "L", _backskip("synthetic"), updates=2)
    dropped = "--checkpoint-activations --encoder-layerdrop 0.1 --decoder-layerdrop 0.1"
    yield _plan(group, "recomputed, LayerDrop", "LTG", "LC", dropped)


MASKS = {
    "--mask-coats 0.3,0.1 --mask-keep-schedule 1:0.7,4:0.5": "fp32",
    "--mask-random --mask-layernorm plain --mask-embeddings trained": "amp",
}
FURTHER_MASKS = {
    "--mask-scope row --mask-kind signed --mask-pin 0.5": "fp32",
    "--mask-scope global --mask-scores value --mask-share none": "fp16",
    "--mask-embeddings frozen --mask-init-weights paper_code --freeze encoder.att": "fp32",
    "--mask-embeddings 8": "fp16",
}
# Trained rounded matrices instead of masks. Each kind of levels is combined with another option.
ROUNDED = {"ternary --mask-share none": "fp16"}
FURTHER_ROUNDED = {
    "sign --fast": "fp32",
    "3 --mask-embeddings frozen": "amp",
    "16 --mask-embeddings trained --mask-layernorm plain": "bf16",
}
_MASKED_LM = "--arch supermask_one_layer_transformer_lm --decoder-layers 1 --share-decoder-input-output-embed"
_MASKED_ROBERTA = "--arch supermask_one_layer_roberta --encoder-layers 1"


def _masks():
    group = "masks"
    yield _case(group, "masks, `--fast`", _masked("--fast", layers=2), optimizer="adam", depth=2, updates=2)
    for flags, precision in MASKS.items():
        yield _case(group, flags, _masked(flags), precision=precision, updates=2 if "schedule" in flags else 1)
    for which, precision in ROUNDED.items():
        yield _rounded(group, which, precision, "adam" if "fast" in which else "sgd")
    yield _case(group, "masked language model", _MASKED_LM, "language model")
    yield _case(group, "masked RoBERTa", _MASKED_ROBERTA, "RoBERTa", precision="amp")


def _rounded(group, which, precision, optimizer="sgd"):
    flags = f"--mask-trained-weights {which}"
    layers = 1 if optimizer == "sgd" else 2  # the second shares the matrices of the first
    return _case(
        group, flags, _masked(flags, layers), precision=precision, optimizer=optimizer, depth=layers, updates=layers
    )


_LM = "--arch reservoir_transformer_lm --reservoir-decoder LTFGCS"
_ROBERTA = "--arch reservoir_roberta --reservoir-encoder LTFGCMS"
_FROZEN = plain_of("translation").replace("--arch ", "--arch frozen_")


def _frozen(group, plain, task="translation"):
    flags = plain_of(plain).replace("--arch ", "--arch frozen_")
    return _case(group, flags.split()[1], f"{flags} --freeze ffn", task, plain)


def _adapter(group, adapter, precision):
    flags = f"{_FROZEN} --freeze att,ffn --frozen-adapter-rank 2 --frozen-adapter {adapter}"
    return _case(group, f"adapter {adapter}", flags, precision=precision)


_FAST_BY_DEFAULT = (("translation", "bf16"),)
# Models for --fast: flags, number of encoder layers, and task.
_FAST = {
    "translation": ("--arch reservoir_transformer --reservoir-encoder LT --reservoir-decoder L", 2, "translation"),
    "masks": (_masked(layers=2), 2, "translation"),
    "language model": (_LM, 1, "language model"),
    "RoBERTa": ("--arch reservoir_roberta --reservoir-encoder LT", 2, "RoBERTa"),
    "masked RoBERTa": (f"{_MASKED_ROBERTA.replace('-layers 1', '-layers 2')}", 2, "RoBERTa"),
}


def _fast(group, which, precision):
    flags, depth, task = _FAST[which]
    return _case(
        group,
        f"{which}, `--fast`",
        f"{flags} --fast",
        task,
        precision=precision,
        optimizer="adam",
        depth=depth,
        updates=2,
    )


def _models():
    group = "models"
    yield _case(group, "language model", _LM, "language model", precision="fp16")
    yield _case(group, "RoBERTa", _ROBERTA, "RoBERTa", depth=7)
    yield _frozen(group, "translation")
    yield _adapter(group, "lora", "fp16")
    for which, precision in _FAST_BY_DEFAULT:
        yield _fast(group, which, precision)


def _further():
    """Every kind with --cuda-graphs, the other masks and models, and the same ones in the other precisions, for the slow test."""
    group, kinds = "further", WITH_EVERY_KIND.values()
    yield _plan(group, "every kind", *kinds, more="--fast --cuda-graphs", precision="bf16", **_RECORDED)
    yield _case(group, "masks", _masked("--cuda-graphs"), precision="fp16", **_RECORDED)
    yield _plan(group, "every kind, `--frozen-dtype bf16`", *kinds, "--frozen-dtype bf16", precision="amp")
    yield _frozen(group, "RoBERTa", "RoBERTa")
    yield _frozen(group, "lightconv")
    yield _adapter(group, "vera", "amp")
    for flags, precision in FURTHER_MASKS.items():
        yield _case(group, flags, _masked(flags), precision=precision)
    for which, precision in FURTHER_ROUNDED.items():
        yield _rounded(group, which, precision, "adam" if "fast" in which else "sgd")
    for precision in ("fp16", "amp", "bf16"):
        yield _plan(group, "every kind", *kinds, precision=precision)
    yield _plan(group, "--frozen-dtype bf16", "TFGC", "TC", "--frozen-dtype bf16")
    yield _plan(group, "--frozen-dtype bf16", "TFGC", "TC", "--frozen-dtype bf16", precision="bf16")
    yield _plan(group, "--frozen-dtype bf16", "TFGC", "TC", "--frozen-dtype bf16", precision="amp")
    for estimator, precision in (
        ("identity", "bf16"),
        ("reinforce", "fp16"),
        ("identity", "fp32"),
        ("reinforce", "fp32"),
    ):
        yield _plan(group, f"backskip {estimator}", "LTF", "L", _backskip(estimator), updates=2, precision=precision)
    yield _plan(group, "recomputed", "LTG", "LC", "--checkpoint-activations")
    yield _plan(group, "LayerDrop", "LTF", "LT", "--encoder-layerdrop 0.1 --decoder-layerdrop 0.1")
    yield _plan(group, "Adam", "LT", optimizer="adam", updates=2)
    yield _case(group, "masks", _masked(layers=2), optimizer="adam", depth=2, updates=2)
    for flags, precision in (MASKS | FURTHER_MASKS).items():
        if precision != "fp32":
            yield _case(group, flags, _masked(flags))
    together = "--mask-pin 0.5 --mask-scope global --mask-kind signed --mask-coats 0.3"
    for precision in ("fp32", "bf16"):
        yield _case(group, together, _masked(together), precision=precision)
    for precision in list(PRECISIONS)[1:]:
        optimizer = "adam" if "memory" in precision else "sgd"
        yield _case(
            group, "masks", _masked("--mask-kind signed --mask-pin 0.3"), precision=precision, optimizer=optimizer
        )
    for number, kind in enumerate(kind for kind in KINDS if kind not in "sign ternary 3 16".split()):
        precision = list(PRECISIONS)[number % len(PRECISIONS)]
        yield _rounded(group, kind, precision, "adam" if "memory" in precision else "sgd")
    rounded = "--mask-trained-weights"
    yield _case(group, f"masked language model, `{rounded} 4`", f"{_MASKED_LM} {rounded} 4", "language model")
    yield _case(group, f"masked RoBERTa, `{rounded} sign`", f"{_MASKED_ROBERTA} {rounded} sign", "RoBERTa")
    yield _case(group, "language model", _LM, "language model")
    yield _case(group, "RoBERTa", _ROBERTA, "RoBERTa", depth=7, precision="fp16")
    yield _case(group, "masked RoBERTa", _MASKED_ROBERTA, "RoBERTa")
    for adapter in ("lora", "vera"):
        yield _adapter(group, adapter, "fp32")
    for precision in ("amp", "fp16, less memory"):
        yield _fast(group, "translation", precision)
    for which in _FAST:
        for precision in ("fp32", "fp16", "bf16"):
            if (which, precision) not in (*_FAST_BY_DEFAULT, ("masks", "fp32")):  # group masks has these
                yield _fast(group, which, precision)


def _planted():
    for name, plant in PLANTS.items():
        if plant.in_masks:
            yield _case("planted", name, _masked(), plant=name)
        else:
            yield _plan("planted", name, "F", more=plant.more, updates=plant.updates, plant=name)


def _graphs():
    """The third batch is replayed, the fourth is longer, and the fifth is replayed again."""
    yield _case("graphs", "language model", f"{_LM} --fast --cuda-graphs", "language model", **_RECORDED)


CASES = tuple(case for cases in (_layers, _masks, _models, _further, _planted, _graphs) for case in cases())
GROUPS = tuple(dict.fromkeys(case.group for case in CASES))
