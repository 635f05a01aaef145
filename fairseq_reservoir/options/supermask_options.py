"""The flags of the supermask models, and their checks."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Optional

from ..errors import InputError, flag_of, whole_number
from ..plan import freeze_spec
from ..plan.mask_choices import MASK_KINDS, RANKINGS, SCOPES, MaskChoices
from .fairseq_flags import ModelFlags
from .flags import SEED, check, check_ranges, option
from .number_rules import collect, refuse
from .reading import read
from .speed_options import FastOptions, regenerate_option

# Every matrix keeps at least one weight. With a smaller share, the scale of this weight would overflow.
SMALLEST_SHARE = 1e-9
# Names from the tables of masks.masked_weight and masks.levels. A test compares them with these tables.
WEIGHT_INITIALISERS = ("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "signed_constant")
UNSCALED = "_unscaled"
WEIGHT_INITS = (
    *WEIGHT_INITIALISERS,
    *(f"{name}{UNSCALED}" for name in ("kaiming_uniform", "xavier_uniform")),
    "signed_fairseq",
    "paper_code",
)
MOST_LEVELS = 16
LEVELS = ("sign", "ternary", *map(str, range(3, MOST_LEVELS + 1)))
# Why --mask-trained-weights excludes flags of masks and random weights, and why --mask-random excludes flags of scores.
_NOT_TRAINED = {"mask_trained_weights": "which has neither masks nor random weights; remove one of these flags"}
_NOT_RANDOM = {"mask_random": "because random masks are not trained; remove one of these flags"}


@dataclass
class MaskOptions(FastOptions):
    """The flags of every supermask model."""

    mask_keep_ratio: float = option(
        0.5,
        "share of the random weights that a mask keeps, greater than 0 and at most 1. Default: 0.5",
        "RATIO",
        above=0,
        at_most=1,
        excludes=_NOT_TRAINED,
    )
    mask_init_weights: str = option(
        "signed_fairseq",
        "distribution of the random weights. kaiming_uniform: as in the paper's text; learns slowly. signed_constant: plus or minus "
        "Kaiming's standard deviation. signed_fairseq: plus or minus the standard deviation of fairseq's initial values for this matrix. "
        "This deviation is smaller than Kaiming's, and the model learns much faster than with kaiming_uniform. paper_code: as the paper's "
        "models were trained, with Xavier in attention and Kaiming uniform elsewhere, or with N(0, 0.02^2) everywhere in a RoBERTa. Other "
        "values: kaiming_normal, xavier_uniform, xavier_normal. All except paper_code, kaiming_uniform_unscaled and "
        "xavier_uniform_unscaled are scaled by sqrt(1 / kept share). Default: signed_fairseq",
        "INIT",
        choices=WEIGHT_INITS,
        excludes=_NOT_TRAINED,
    )
    mask_scope: str = option(
        "tensor",
        "unit to which the kept share applies: each weight matrix (tensor), each row of a matrix (row), or all matrices together "
        "(global). With global, each matrix keeps at least a tenth of the share. Default: tensor",
        "SCOPE",
        choices=SCOPES,
        excludes=_NOT_TRAINED,
    )
    mask_scores: str = option(
        "magnitude",
        "rank the learned scores by magnitude, as in the paper, or by value. Default: magnitude",
        "RANKING",
        choices=RANKINGS,
        excludes=_NOT_TRAINED,
    )
    mask_kind: str = option(
        "binary",
        "values in a mask: 0 and 1 (binary), or -1, 0 and 1 (signed); -1 flips the sign of a weight. Default: binary",
        "MASK",
        choices=MASK_KINDS,
        excludes=_NOT_TRAINED,
    )
    mask_coats: Optional[str] = option(
        None,
        "additional shares of weights to keep, each smaller than the one before, for example 0.3,0.1. Each share has its own mask, called "
        "a coat. The masks of all shares are added, so that weights with high scores count two or three times (multicoated masks)",
        "RATIOS",
        excludes=_NOT_TRAINED,
    )
    mask_layernorm: str = option(
        "affine",
        "plain: LayerNorms have no gain and no bias, so that only masks are trained, as in the paper; affine: LayerNorms have a trained "
        "gain and bias. Default: affine",
        "NORM",
        choices=("plain", "affine"),
    )
    mask_keep_schedule: Optional[str] = option(
        None,
        "decrease the kept share during training: from 1 at update 0, linearly from point to point. Points are UPDATE:SHARE, separated "
        "by commas. The last share must be --mask-keep-ratio. Example: 1000:0.7,4000:0.5",
        "POINTS",
        excludes=_NOT_TRAINED | _NOT_RANDOM,
    )
    mask_pin: float = option(
        0.0,
        "share of each mask's entries that are drawn at random once and are never trained; at least 0 and below 1. Default: 0",
        "SHARE",
        excludes=_NOT_TRAINED | _NOT_RANDOM,
    )
    mask_row_gain: bool = option(
        False,
        "also train one factor for each row of every masked matrix. The factor is 1 at the start. This improves results. An export is "
        "larger by four bytes for each row, or by two bytes with export --dtype fp16",
        excludes=_NOT_TRAINED,
    )
    mask_random: bool = option(False, "control experiment: random masks that are never trained", excludes=_NOT_TRAINED)
    mask_share: str = option(
        "layer",
        "layer: all layers of a stack share the random weights of one layer, and each layer has its own masks; none: each layer has its "
        "own random weights, as in the paper's comparison. Default: layer",
        "WHAT",
        choices=("layer", "none"),
    )
    mask_trained_weights: Optional[str] = option(
        None,
        "control experiment without masks: train the matrices, and round them to a few bits whenever they are used. sign: 1 bit, plus or "
        "minus one scale for each row; ternary: -1, 0 or 1 times a scale, as in BitNet b1.58; or a number of levels from 3 to 16, with a "
        "scale for each row. With --mask-share layer, all layers of a stack share one layer's matrices. With --mask-share none, each layer "
        "has its own matrices. The initial values have the same standard deviation as fairseq's initial values",
        "LEVELS",
    )
    mask_embeddings: str = option(
        "masked",
        "token embeddings and output projection: masked (random values with masks), frozen (random values without masks), trained, or "
        "trained and rounded (sign, ternary or 3 to 16, as in --mask-trained-weights). Together with --mask-trained-weights, masked "
        "means rounded like the layers. Default: masked",
        "HOW",
        choices=("masked", "frozen", "trained", *LEVELS),
    )
    embed_min_coverage: float = option(
        0.5,
        "the file of --encoder-embed-path or --decoder-embed-path must have vectors for at least this share of the dictionary's words. "
        "Default: 0.5",
        "SHARE",
        at_least=0,
        at_most=1,
    )
    mask_seed: int = option(SEED, "seed of random weights, initial scores and random masks. Default: --seed", "N")
    freeze: Optional[str] = option(
        None,
        "components to freeze at their initial values, for example att,encoder.ffn. The masks of frozen components are not trained",
        "SPEC",
    )
    regenerate_weights: bool = regenerate_option(excludes=_NOT_TRAINED)


def check_mask_options(options: Namespace) -> None:
    """Raise an error if a flag has a value that is invalid for masks.

    Raises:
        InputError: one line with the first three errors and the number of further errors.
    """
    found: list[str] = []
    with collect(found):
        check(options, MaskOptions)
    with collect(found):
        _check_smallest_share(options)
    # With an invalid share, kind or pinned share, ``mask_choices`` would blame other flags.
    with collect(found):
        check_lists = _parsed if found else mask_choices
        check_lists(options)
    if options.mask_trained_weights not in (None, *LEVELS):
        found.append(
            f"--mask-trained-weights {options.mask_trained_weights!r}: must be sign, ternary, or a number of levels from 3 to {MOST_LEVELS}"
        )
    with collect(found):
        if options.freeze:
            freeze_spec.parse(options.freeze)
    with collect(found):
        check_ranges(options)
    with collect(found):
        _check_model_flags(options)
    refuse(found)


def _check_smallest_share(options):
    if options.mask_keep_ratio < SMALLEST_SHARE:
        raise InputError(
            f"--mask-keep-ratio {options.mask_keep_ratio}: must be at least {SMALLEST_SHARE}, one weight in a billion"
        )


def _check_model_flags(options):
    """Refuse flags of fairseq that masked models do not support."""
    found: list[str] = []
    flags = vars(read(ModelFlags, options))
    for name in ("encoder_layers", "decoder_layers"):
        depth = flags[name]
        if depth is not None and depth < 1:
            found.append(f"{flag_of(name)} {depth}: must be at least 1")
    for name in ("quant_noise_pq", "quant_noise_scalar"):
        if flags[name]:
            found.append(f"{flag_of(name)} {flags[name]}: not supported with masked weights; remove the flag")
    for name in ("adaptive_input", "adaptive_softmax_cutoff"):
        if flags[name] and not whole_embeddings(options):
            found.append(
                f"{flag_of(name)}: not supported with masked or rounded embeddings; use --mask-embeddings trained or frozen"
            )
    refuse(found)


def whole_embeddings(options: Namespace) -> bool:
    """Whether token embeddings and output projection are fairseq's own, neither masked nor rounded."""
    return options.mask_embeddings in ("frozen", "trained")


def embedding_levels(options: Namespace) -> str | None:
    """Return the levels to which trained token embeddings and output projection are rounded. Return None if they are not rounded."""
    if options.mask_embeddings in LEVELS:
        return options.mask_embeddings
    return None if whole_embeddings(options) else options.mask_trained_weights


def mask_choices(options: Namespace | MaskOptions) -> dict[str, Any]:
    """Convert the flags to the arguments of ``MaskChoices``.

    Raises:
        InputError: a value is not allowed; the message names the flag.
    """
    found: list[str] = []
    choices: dict[str, Any] = {
        "keep_ratio": options.mask_keep_ratio,
        "scope": options.mask_scope,
        "ranking": options.mask_scores,
        "kind": options.mask_kind,
        "pin": options.mask_pin,
        "random": options.mask_random,
        **_parsed(options),
    }
    for flag, names in _FIELDS_OF_FLAGS.items():
        try:
            MaskChoices(choices["keep_ratio"], **{name: choices[name] for name in names})
        except ValueError as error:
            reason = str(error).split(": ", 1)[1]
            found.append(f"{flag_of(flag)} {vars(options)[flag]!r}: {reason}")
    refuse(found)
    return choices


def _parsed(options):
    """Parse the flags with lists of numbers."""
    found: list[str] = []
    parsed: dict[str, Any] = {}
    with collect(found):
        parsed["coats"] = _numbers("mask_coats", options.mask_coats)
    with collect(found):
        parsed["keep_schedule"] = _points("mask_keep_schedule", options.mask_keep_schedule)
    refuse(found)
    return parsed


# Flag that an error message names -> fields of ``MaskChoices`` that are checked for this flag.
_FIELDS_OF_FLAGS = {
    "mask_coats": ("coats",),
    "mask_keep_schedule": ("keep_schedule",),
    "mask_pin": ("pin",),
    "mask_kind": ("kind", "ranking"),
}


def _numbers(name, text):
    try:
        return tuple(float(number) for number in text.split(",")) if text else ()
    except ValueError:
        raise InputError(
            f"{flag_of(name)} {text!r}: must be shares greater than 0 and at most 1, separated by commas, such as 0.3,0.1"
        ) from None


def _points(name, text):
    try:
        pairs = [point.split(":") for point in text.split(",")] if text else []
        points = tuple((whole_number(update.strip()), float(ratio)) for update, ratio in pairs)
        if any(update is None for update, _ in points):
            raise ValueError
        return points
    except ValueError:
        raise InputError(
            f"{flag_of(name)} {text!r}: must be UPDATE:SHARE items, separated by commas, such as 1000:0.7,4000:0.5"
        ) from None
