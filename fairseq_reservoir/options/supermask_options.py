"""The flags of the supermask models, and their checks."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Optional

from ..errors import InputError, flag_of, whole_number
from ..plan.mask_choices import MASK_KINDS, RANKINGS, SCOPES, MaskChoices
from .fairseq_flags import ModelFlags
from .fast_options import FastOptions
from .flags import SEED, check, check_ranges, option
from .reading import read

# A smaller share keeps one weight of every matrix anyway, scaled up until numbers overflow.
SMALLEST_SHARE = 1e-9
# Names in the tables of masks.masked_weight and masks.levels; a test compares them.
WEIGHT_INITIALISERS = ("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "signed_constant")
WEIGHT_INITS = (*WEIGHT_INITIALISERS, "signed_fairseq", "paper_code")
MOST_LEVELS = 16
LEVELS = ("sign", "ternary", *map(str, range(3, MOST_LEVELS + 1)))
# Trained weights have no masks and no random weights, so that flags of those are refused beside them.
_NOT_TRAINED = {"mask_trained_weights": "which has neither masks nor random weights; leave it out"}
_NOT_RANDOM = {"mask_random": "whose masks learn nothing; leave one of them out"}


@dataclass
class MaskOptions(FastOptions):
    """The flags of every supermask model."""

    mask_keep_ratio: float = option(
        0.5,
        "share of the random weights that a mask keeps, in (0, 1]. Default: 0.5",
        "RATIO",
        above=0,
        at_most=1,
        excludes=_NOT_TRAINED,
    )
    mask_init_weights: str = option(
        "signed_fairseq",
        "how the random weights are drawn, always scaled by sqrt(1 / kept share): kaiming_uniform (the paper's), "
        "kaiming_normal, xavier_uniform, xavier_normal, signed_constant (plus or minus one value, Kaiming's), signed_fairseq "
        "(plus or minus the size that fairseq starts that matrix with when it is trained, which is smaller in attention and "
        "learns much faster), or paper_code, the unscaled mixture that the paper's code really trains: Xavier in attention, "
        "Kaiming uniform elsewhere; in a RoBERTa N(0, 0.02^2) everywhere. Default: signed_fairseq",
        "INIT",
        choices=WEIGHT_INITS,
        excludes=_NOT_TRAINED,
    )
    mask_scope: str = option(
        "tensor",
        "what the kept share is of: each weight matrix (tensor), each row, or all together (global), where each matrix keeps at least a "
        "tenth of the share. Default: tensor",
        "SCOPE",
        choices=SCOPES,
        excludes=_NOT_TRAINED,
    )
    mask_scores: str = option(
        "magnitude",
        "rank the learned scores by magnitude, as the paper, or by value. Default: magnitude",
        "RANKING",
        choices=RANKINGS,
        excludes=_NOT_TRAINED,
    )
    mask_kind: str = option(
        "binary",
        "a mask of 0 and 1, or signed: of -1, 0 and 1, which also flips weights. Default: binary",
        "MASK",
        choices=MASK_KINDS,
        excludes=_NOT_TRAINED,
    )
    mask_coats: Optional[str] = option(
        None,
        "further, smaller kept shares, descending, as in 0.3,0.1: their masks are added to the first one, so weights with "
        "high scores count two or three times (multicoated masks)",
        "RATIOS",
        excludes=_NOT_TRAINED,
    )
    mask_layernorm: str = option(
        "affine",
        "plain: LayerNorms have no gain and bias, so that only masks are learned, as in the paper; affine: they are "
        "trained. Default: affine",
        "NORM",
        choices=("plain", "affine"),
    )
    mask_keep_schedule: Optional[str] = option(
        None,
        "let the kept share fall from 1 at update 0, in straight lines through UPDATE:SHARE points, the last of them "
        "--mask-keep-ratio, as in 1000:0.7,4000:0.5",
        "POINTS",
        excludes=_NOT_TRAINED | _NOT_RANDOM,
    )
    mask_pin: float = option(
        0.0,
        "share of each mask that is fixed at random from the start and has no score, in [0, 1). Default: 0",
        "SHARE",
        excludes=_NOT_TRAINED | _NOT_RANDOM,
    )
    mask_row_gain: bool = option(
        False,
        "train a factor of each row of every masked matrix, too, 1 at the start: a better score for a file that is larger by two "
        "bytes a row, four without export's --dtype fp16",
        excludes=_NOT_TRAINED,
    )
    mask_random: bool = option(False, "control: random masks that are never trained", excludes=_NOT_TRAINED)
    mask_share: str = option(
        "layer",
        "layer: all layers of a stack are one random layer seen through different masks; none: each layer has random "
        "weights of its own, as in the paper's comparison. Default: layer",
        "WHAT",
        choices=("layer", "none"),
    )
    mask_trained_weights: Optional[str] = option(
        None,
        "control: no masks, but trained matrices that are used rounded, of as many bits: sign (1 bit: plus or minus a scale for "
        "each row), ternary (-1, 0, 1 times a scale, as BitNet b1.58), or a number of levels from 3 to 16, with a scale for each "
        "row. --mask-share layer: one layer for all depths of a stack; none: each its own. They start as fairseq's do",
        "LEVELS",
    )
    mask_embeddings: str = option(
        "masked",
        "token embeddings and output projection: masked random ones, frozen unmasked, trained, or trained and used rounded: to their "
        "sign, to ternary values, or to a number of levels from 3 to 16, as --mask-trained-weights does, beside which masked means rounded "
        "as the layers. Default: masked",
        "HOW",
        choices=("masked", "frozen", "trained", *LEVELS),
    )
    embed_min_coverage: float = option(
        0.5,
        "refuse an --encoder-embed-path or --decoder-embed-path that has less than this share of the dictionary's words. "
        "Default: 0.5",
        "SHARE",
        at_least=0,
        at_most=1,
    )
    mask_seed: int = option(SEED, "seed of random weights, initial scores and random masks. Default: --seed", "N")
    freeze: Optional[str] = option(
        None,
        "further components to freeze at their initial values, as in att,encoder.ffn: their masks stay as drawn",
        "SPEC",
    )
    regenerate_weights: bool = option(
        False,
        "when translating, hold no random weights: draw those of a layer when it runs, apply its mask and drop them. "
        "fairseq-generate and fairseq-interactive take it as --model-overrides \"{'regenerate_weights': True}\"; refused in "
        "training",
        excludes=_NOT_TRAINED,
    )


def check_mask_options(options: Namespace) -> None:
    """Refuse values that no mask can have, by the flag's name.

    Raises:
        InputError: one line with flag, value and what is allowed.
    """
    check(options, MaskOptions)
    if options.mask_keep_ratio < SMALLEST_SHARE:
        raise InputError(
            f"--mask-keep-ratio {options.mask_keep_ratio}: must be at least {SMALLEST_SHARE}, one weight of a billion"
        )
    if options.mask_trained_weights not in (None, *LEVELS):
        raise InputError(
            f"--mask-trained-weights {options.mask_trained_weights!r}: must be sign, ternary, or a number of levels from 3 to {MOST_LEVELS}"
        )
    check_ranges(options)
    flags = vars(read(ModelFlags, options))
    for name in ("encoder_layers", "decoder_layers"):
        depth = flags[name]
        if depth is not None and depth < 1:
            raise InputError(f"{flag_of(name)} {depth}: must be at least 1")
    for name in ("quant_noise_pq", "quant_noise_scalar"):
        if flags[name]:
            raise InputError(f"{flag_of(name)} {flags[name]}: masked weights have no quantization noise, leave it out")
    for name in ("adaptive_input", "adaptive_softmax_cutoff"):
        if flags[name] and not whole_embeddings(options):
            raise InputError(f"{flag_of(name)}: has no masked or rounded form, use --mask-embeddings trained or frozen")
    mask_choices(options)


def whole_embeddings(options: Namespace) -> bool:
    """Whether token embeddings and output projection are fairseq's own, neither masked nor rounded."""
    return options.mask_embeddings in ("frozen", "trained")


def embedding_levels(options: Namespace) -> str | None:
    """The levels that trained token embeddings and output projection are rounded to, or None if they are not rounded."""
    if options.mask_embeddings in LEVELS:
        return options.mask_embeddings
    return None if whole_embeddings(options) else options.mask_trained_weights


def mask_choices(options: Namespace | MaskOptions) -> dict[str, Any]:
    """The arguments of ``MaskChoices`` that the flags give.

    Raises:
        InputError: a value is not allowed; the message names its flag.
    """
    choices: dict[str, Any] = {
        "keep_ratio": options.mask_keep_ratio,
        "coats": _numbers("mask_coats", options.mask_coats),
        "scope": options.mask_scope,
        "ranking": options.mask_scores,
        "kind": options.mask_kind,
        "pin": options.mask_pin,
        "random": options.mask_random,
        "keep_schedule": _points("mask_keep_schedule", options.mask_keep_schedule),
    }
    for flag, names in _FIELDS_OF_FLAGS.items():
        try:
            MaskChoices(choices["keep_ratio"], **{name: choices[name] for name in names})
        except ValueError as error:
            reason = str(error).split(": ", 1)[1]
            raise InputError(f"{flag_of(flag)} {getattr(options, flag)!r}: {reason}") from None
    return choices


# The fields of ``MaskChoices`` that are checked in the name of each flag.
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
        raise InputError(f"{flag_of(name)} {text!r}: a comma list of shares in (0, 1], as in 0.3,0.1") from None


def _points(name, text):
    try:
        pairs = [point.split(":") for point in text.split(",")] if text else []
        points = tuple((whole_number(update.strip()), float(ratio)) for update, ratio in pairs)
        if any(update is None for update, _ in points):
            raise ValueError
        return points
    except ValueError:
        raise InputError(f"{flag_of(name)} {text!r}: a comma list of UPDATE:SHARE, as in 1000:0.7,4000:0.5") from None
