"""Translate flags and architectures of the papers' official code into the flags of this package.

A user who pastes a command of the one-layer supermask paper gets one line with the flags to give instead. docs/coming-from-the-papers.md
explains these flags.
"""

_ARCHITECTURE = "supermask_one_layer_transformer"
# Flag of the papers -> our flags. {} stands for the given value. A dictionary has one entry per value. None: no counterpart.
_FLAGS: dict[str, str | None | dict[str, str | None]] = {
    "--prune-ratio": "--mask-keep-ratio {}",
    "--prune-method": {
        "super_mask": "--mask-scores magnitude",
        "topk": "--mask-scores value",
        "signed_threshold": "--mask-kind signed",
    },
    "--share-mask": {"layer_weights": "--mask-share layer", "none": "--mask-share none"},
    "--init": {
        name: f"--mask-init-weights {name}"
        for name in ("kaiming_uniform", "kaiming_normal", "signed_constant", "xavier_normal")
    },
    "--mask-layernorm-type": {
        "masked_layernorm": "--mask-layernorm plain",
        "normal_layernorm": "--mask-layernorm affine",
    },
    "--embed-no-mask": "--mask-embeddings frozen",
    "--weight-trainable": "--mask-embeddings trained",
    "--load-ckpt": {"embed": "--mask-embeddings-from CHECKPOINT"},
    "--scale-fan": "this is the default; remove it",
    "--mask-init": None,
    "--mask-constant": None,
    "--share-bias": None,
    "--need-bias": None,
    "--init-embedding-seperate": None,
    "--dynamic-scaling": None,
    "--mask-regularization-type": None,
    "--mask-regularization-lambda": None,
}
_ARCHITECTURES = {
    "masked_transformer": _ARCHITECTURE,
    "masked_transformer_iwslt_de_en": f"{_ARCHITECTURE}_iwslt_de_en",
    "masked_transformerbig_iwslt_de_en": f"{_ARCHITECTURE}_wide_iwslt_de_en",
    "masked_transformer_wmt_en_de": f"{_ARCHITECTURE}_wmt_en_de",
    "masked_transformer_wmt_en_de_big": f"{_ARCHITECTURE}_wider_wmt_en_de",
    "masked_roberta": "supermask_one_layer_roberta",
}


def answers(unrecognized: list[str]) -> tuple[list[str], list[str]]:
    """Return two lists: an answer for each flag of the papers' code, and all other words in ``unrecognized``.

    ``["--prune-ratio", "0.5", "--no-such"]`` gives ``["--prune-ratio: in this package --mask-keep-ratio 0.5"]`` and ``["--no-such"]``.
    """
    found, others, words = [], [], list(unrecognized)
    while words:
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        if flag not in _FLAGS:
            others.append(word)
            continue
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        found.append(_answer(flag, value))
    return found, others


def _answer(flag: str, value: str) -> str:
    ours = _FLAGS[flag]
    if isinstance(ours, dict):
        flag, ours = f"{flag} {value}".rstrip(), ours.get(value)
    if ours is None:
        return f"{flag}: this package has no such option; remove it"
    return f"{flag}: in this package {ours.format(value or 'VALUE')}"


def answer_for_architecture(name: str) -> str:
    """Return ``--arch NAME: in this package --arch OURS`` for an architecture of the papers' code; "" for all other names."""
    return f"--arch {name}: in this package --arch {_ARCHITECTURES[name]}" if name in _ARCHITECTURES else ""
