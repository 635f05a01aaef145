"""The flags of models with a layer plan: which layers, and how the frozen ones are built and computed."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass import FairseqDataclass

from ..errors import InputError, flag_of, whole_number
from ..layers.backskip.backward_skip import ESTIMATORS, WARMUP_UPDATES
from ..layers.frozen_dtype import DTYPES
from ..plan import kinds
from .component_options import ComponentOptions, check_components
from .flags import check_ranges, option

NORMS = ("paper", "model")
# Longer kernels than fairseq's longest sentences serve nobody, and those of millions of weights fill the memory.
LONGEST_KERNEL = 1023
_TYPES_OF_RESERVOIRS = kinds.listed([f"{name} ({letter})" for name, letter in kinds.reservoir_types().items()], "or")


@dataclass
class EncoderPlanOptions(FairseqDataclass):
    """The flags that place the layers of an encoder."""

    reservoir_encoder: Optional[str] = option(
        None,
        "layer plan of the encoder, one letter per layer, bottom first, as in LLFLFLL or 2LFLF2L. Sets the depth. Default: all L. "
        f"{kinds.describe_letters('encoder')}",
        "PLAN",
    )
    reservoir_count: Optional[int] = option(
        None, "instead of --reservoir-encoder: how many of the --encoder-layers are reservoirs", "N"
    )


@dataclass
class DecoderPlanOptions(FairseqDataclass):
    """The flags that place the layers of a decoder."""

    reservoir_decoder: Optional[str] = option(
        None,
        f"layer plan of the decoder. Default: all L. {kinds.describe_letters('decoder')}. The attention to the source of frozen "
        f"{kinds.listed(kinds.frozen_letters('decoder', sees_source=True, fairseqs=False))} is trained",
        "PLAN",
    )
    reservoir_decoder_count: Optional[int] = option(
        None, "instead of --reservoir-decoder: how many of the --decoder-layers are reservoirs", "N"
    )


@dataclass
class FrozenLayerOptions(ComponentOptions):
    """The flags of every model with a layer plan, whatever stacks it has."""

    reservoir_type: str = option(
        "ffn", f"what --reservoir-count puts there: {_TYPES_OF_RESERVOIRS}. Default: ffn", "TYPE"
    )
    reservoir_placement: str = option(
        "alternate",
        "where --reservoir-count puts them: alternate with ordinary layers around the middle, as in the paper "
        "(7 layers, 2 reservoirs: LLFLFLL), or in one block at bottom, middle or top. Default: alternate",
        "PLACE",
    )
    reservoir_norm: str = option(
        "paper",
        f"LayerNorm of {kinds.listed(kinds.letters_where(own_norm=True))} layers: paper puts it before the layer's function "
        "even in a post-norm model; model follows --encoder-normalize-before and --decoder-normalize-before. Default: paper",
        "NORM",
    )
    reservoir_train_layernorm: bool = option(
        False, "train the LayerNorms of frozen layers (default: frozen at 1 and 0)"
    )
    reservoir_no_dropout: bool = option(False, "no dropout inside frozen layers (default: as in the others)")
    reservoir_kernel_sizes: str = option(
        "3,7,15,31",
        f"odd kernel sizes of {kinds.listed(kinds.letters_where(kernel_sizes=True))} layers by depth, up to {LONGEST_KERNEL}; "
        "the last one serves all deeper layers. Default: 3,7,15,31",
        "SIZES",
    )
    frozen_dtype: str = option(
        "fp32",
        "type of the matrices of wholly frozen layers, and of their products: bf16 halves their memory, and is faster where the processor "
        "has instructions for it. With --bf16 the whole model has that type anyway; with --fp16 it is refused. Default: fp32",
        "TYPE",
    )
    reservoir_fast_dropout: bool = option(
        False,
        "draw dropout's random numbers on a CPU sixteen bits an entry from a fast generator, instead of one after the other as floats: "
        "the same distribution, other numbers than fairseq's. Changes nothing on a GPU",
    )
    backskip: Optional[str] = option(
        None,
        "skip the backward pass through wholly frozen layers, and hand the layer below an estimated gradient: synthetic, from a "
        "regression on true gradients, reinforce, the paper's, a value network and noise on the layer's input, or identity, the "
        "gradient above the layer as it is",
        "ESTIMATOR",
    )
    backskip_warmup: int = option(
        WARMUP_UPDATES,
        f"updates with true gradients only, before --backskip-anneal sets in. Default: {WARMUP_UPDATES}",
        "N",
    )
    backskip_anneal: float = option(
        0.99,
        "probability P of a true gradient in the first update after --backskip-warmup; P squared in the second, P to the third in "
        "the third, and so on. 1: always, 0: never. Default: 0.99",
        "P",
    )


@dataclass
class ReservoirOptions(FrozenLayerOptions, DecoderPlanOptions, EncoderPlanOptions):
    """The flags of a model with a layer plan for its encoder and one for its decoder."""


def check_layer_options(options: Namespace) -> None:
    """Refuses values that no layer can have, whatever the plan.

    Raises:
        InputError: one line with the flag, the value and what is allowed.
    """
    if options.reservoir_norm not in NORMS:
        raise InputError(f"--reservoir-norm {options.reservoir_norm!r}: choose from {', '.join(NORMS)}")
    kernel_sizes(options.reservoir_kernel_sizes)
    check_ranges(options)
    check_components(options)
    if options.frozen_dtype not in DTYPES:
        raise InputError(f"--frozen-dtype {options.frozen_dtype!r}: choose from {', '.join(DTYPES)}")
    if options.backskip not in (None, *ESTIMATORS):
        raise InputError(f"--backskip {options.backskip!r}: choose from {', '.join(ESTIMATORS)}")
    if options.backskip_warmup < 0:
        raise InputError(f"--backskip-warmup {options.backskip_warmup}: must be at least 0")
    if not 0 <= options.backskip_anneal <= 1:
        raise InputError(f"--backskip-anneal {options.backskip_anneal:g}: must be from 0 to 1")
    for name in ("backskip_warmup", "backskip_anneal") if options.backskip is None else ():
        value = getattr(options, name)
        if value != getattr(FrozenLayerOptions, name):
            raise InputError(f"{flag_of(name)} {value:g}: has no effect without --backskip")


def kernel_sizes(text: str) -> tuple[int, ...]:
    """``"3,7"`` -> ``(3, 7)``."""
    sizes = [whole_number(size.strip()) for size in text.split(",")]
    usable = tuple(size for size in sizes if size is not None and size % 2 and size <= LONGEST_KERNEL)
    if len(usable) != len(sizes):
        raise InputError(
            f"--reservoir-kernel-sizes {text!r}: a comma list of odd numbers up to {LONGEST_KERNEL}, as in 3,7,15,31"
        )
    return usable
