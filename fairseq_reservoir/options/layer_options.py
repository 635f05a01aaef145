"""The flags of models with a layer plan. They set the kinds of layers, and how frozen layers are built and computed."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

from ..errors import InputError, whole_number
from ..plan import kinds
from .component_options import ComponentOptions, check_components
from .flags import Flags, check, check_ranges, option
from .number_rules import collect, refuse

NORMS = ("paper", "model")
# Names from the tables of layers.frozen_dtype and layers.backskip. A test compares them with these tables.
FROZEN_DTYPES = ("fp32", "bf16")
ESTIMATORS = ("synthetic", "reinforce", "identity")
WARMUP_UPDATES = 100
# Kernels longer than fairseq's longest sentences are useless, and kernels of millions of weights would fill the memory.
LONGEST_KERNEL = 1023
# Reasons in messages of flags that --rezero excludes.
_NO_NORM = "because its layers have no LayerNorm; remove one of these flags"
_NOT_WHOLE = "because it trains the gain of every layer, so no layer is wholly frozen; remove one of these flags"
_TYPES_OF_RESERVOIRS = kinds.listed([f"{name} ({letter})" for name, letter in kinds.reservoir_types().items()], "or")


@dataclass
class EncoderPlanOptions(Flags):
    """The flags that place the layers of an encoder."""

    reservoir_encoder: Optional[str] = option(
        None,
        "layer plan of the encoder, one letter per layer, bottom first. Examples: LLFLFLL, 2LFLF2L. The plan sets the depth. Default: "
        f"all L. {kinds.describe_letters('encoder')}",
        "PLAN",
    )
    reservoir_count: Optional[int] = option(
        None, "instead of --reservoir-encoder: number of encoder layers that are reservoirs (frozen random layers)", "N"
    )


@dataclass
class DecoderPlanOptions(Flags):
    """The flags that place the layers of a decoder."""

    reservoir_decoder: Optional[str] = option(
        None,
        f"layer plan of the decoder. Default: all L. {kinds.describe_letters('decoder')}. In "
        f"{kinds.listed(kinds.frozen_letters('decoder', sees_source=True, fairseqs=False))} layers, the attention to the source is trained",
        "PLAN",
    )
    reservoir_decoder_count: Optional[int] = option(
        None, "instead of --reservoir-decoder: number of decoder layers that are reservoirs (frozen random layers)", "N"
    )


@dataclass
class FrozenLayerOptions(ComponentOptions):
    """The flags that all models with a layer plan have."""

    reservoir_type: str = option(
        "ffn", f"kind of the reservoirs of --reservoir-count: {_TYPES_OF_RESERVOIRS}. Default: ffn", "TYPE"
    )
    reservoir_placement: str = option(
        "alternate",
        "positions of the reservoirs of --reservoir-count. alternate: every second layer in the middle of the stack, as in the paper "
        "(LLFLFLL for 7 layers with 2 reservoirs). bottom, middle, top: one block of reservoirs at this place. Default: alternate",
        "PLACE",
    )
    reservoir_norm: str = option(
        "paper",
        f"position of the LayerNorm in {kinds.listed(kinds.letters_where(own_norm=True))} layers. Value paper: before the layer's "
        "function, also in a post-norm model. Value model: as set by --encoder-normalize-before and --decoder-normalize-before. "
        "Default: paper",
        "NORM",
        choices=NORMS,
        excludes={"rezero": _NO_NORM},
    )
    reservoir_train_layernorm: bool = option(
        False,
        "train the LayerNorms of frozen layers (default: frozen with gain 1 and bias 0)",
        excludes={"rezero": _NO_NORM},
    )
    rezero: bool = option(
        False,
        "ReZero's residual connections (Bachlechner et al., 2020), as in the enwik8 models of the Reservoir Transformers paper. Each layer "
        "has one trained gain, which is 0 at the start. Each sublayer f computes x + gain * dropout(f(x)). The layers have no LayerNorm, "
        "and none follows the last layer. The gain is trained in frozen layers too, because a layer with gain 0 is the identity",
    )
    reservoir_no_dropout: bool = option(
        False, "no dropout inside frozen layers (default: the same dropout as in other layers)"
    )
    reservoir_kernel_sizes: str = option(
        "3,7,15,31",
        f"odd kernel sizes, up to {LONGEST_KERNEL}, of {kinds.listed(kinds.letters_where(kernel_sizes=True))} layers. The n-th size is "
        "for the n-th layer of the stack from the bottom. If the stack has more layers than sizes, the remaining layers have the last "
        "size. Default: 3,7,15,31",
        "SIZES",
    )
    frozen_dtype: str = option(
        "fp32",
        "dtype of the matrices of wholly frozen layers, in memory and in matrix products. bf16 halves the memory of these "
        "matrices, and is faster than fp32 if the processor has bf16 instructions. With --bf16 the whole model is bf16 anyway. bf16 is "
        "refused with --fp16. Default: fp32",
        "TYPE",
        choices=FROZEN_DTYPES,
        excludes={"rezero": _NOT_WHOLE},
    )
    reservoir_fast_dropout: bool = option(
        False,
        "on a CPU, dropout uses a fast random number generator, which needs 16 random bits for each element. The distribution is that of "
        "fairseq's dropout, but the random numbers are different. No effect on a GPU",
    )
    backskip: Optional[str] = option(
        None,
        "skip the backward pass through wholly frozen layers, and pass an estimated gradient to the layer below. synthetic: estimated by a "
        "regression on true gradients; reinforce: estimated by the paper's value network, with noise on the layer's input; identity: the "
        "gradient of the layer's output, unchanged",
        "ESTIMATOR",
        choices=ESTIMATORS,
        excludes={"rezero": _NOT_WHOLE},
    )
    backskip_warmup: int = option(
        WARMUP_UPDATES,
        f"number of updates at the start that use only true gradients, before --backskip-anneal applies. Default: {WARMUP_UPDATES}",
        "N",
        at_least=0,
        needs=("backskip",),
    )
    backskip_anneal: float = option(
        0.99,
        "after --backskip-warmup, the probability of a true gradient decreases. A value P means: probability P in the first update, P^2 in "
        "the second, P^3 in the third, and so on. With 1, all gradients are true; with 0, all are estimated. Default: 0.99",
        "P",
        at_least=0,
        at_most=1,
        needs=("backskip",),
    )


@dataclass
class ReservoirOptions(FrozenLayerOptions, DecoderPlanOptions, EncoderPlanOptions):
    """The flags of a model with a layer plan for its encoder and one for its decoder."""


def own_kinds() -> list[str]:
    """Return one line for each kind of layer from a ``--user-dir``: letters, name and module."""
    own = [kind for kind in kinds.all_kinds() if kind.registered_by]
    return [f"{'/'.join(kind.letters)}  {kind.name}, of {kind.registered_by}" for kind in own]


def check_layer_options(options: Namespace) -> None:
    """Check the layer options that can be checked without the layer plan."""
    found: list[str] = []
    with collect(found):
        kernel_sizes(options.reservoir_kernel_sizes)
    with collect(found):
        check_ranges(options)
    with collect(found):
        check_components(options)
    with collect(found):
        check(options, FrozenLayerOptions)
    refuse(found)


def kernel_sizes(text: str) -> tuple[int, ...]:
    """Parse ``--reservoir-kernel-sizes``: ``"3,7"`` -> ``(3, 7)``.

    Raises:
        InputError: a size is even, too large or not a number.
    """
    sizes = [whole_number(size.strip()) for size in text.split(",")]
    usable = tuple(size for size in sizes if size is not None and size % 2 and size <= LONGEST_KERNEL)
    if len(usable) != len(sizes):
        raise InputError(
            f"--reservoir-kernel-sizes {text!r}: must be odd numbers up to {LONGEST_KERNEL}, separated by commas, such as 3,7,15,31"
        )
    return usable
