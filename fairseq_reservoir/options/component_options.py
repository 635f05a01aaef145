"""The flags that freeze components of our models and of fairseq's, and their checks."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

from ..errors import InputError
from ..plan import freeze_spec
from .fairseq_flags import ModelFlags
from .flags import SEED, check, option
from .freeze_cache_options import FreezeCacheOptions
from .reading import read

ADAPTERS = ("lora", "vera")


@dataclass
class ComponentOptions(FreezeCacheOptions):
    """The flags that freeze components of our models and of fairseq's, and the seed of the random tensors."""

    reservoir_seed: int = option(SEED, "seed of the frozen tensors. Default: --seed", "N")
    freeze: Optional[str] = option(
        None,
        "further components to freeze at their initial values: a comma list of "
        "[encoder.|decoder.][layers.<i>[-<j>].][<component>], component one of emb, att, self_att, cross_att, q, k, v, o, "
        "mix, ffn, fc1, fc2, ln, pos, out, other, bias. Example: emb,encoder.ffn",
        "SPEC",
    )
    freeze_except: Optional[str] = option(
        None,
        "freeze everything but these components, written as for --freeze; with --freeze, everything that it names but these. A "
        "component without a place may be missing from the model, as pos is where positions are sinusoidal. Example: ln,pos,emb,out",
        "SPEC",
    )
    frozen_init: str = option(
        "model",
        "initial values of the components that --freeze and --freeze-except freeze: model, the model's own (they follow --seed); "
        "or matrices drawn from --reservoir-seed and their names, each projection by itself: orthogonal, glorot, "
        "kaiming_uniform or signed_constant; or diagonal, ones on the diagonal and zeros elsewhere, square or not (the likely "
        'reading of the undefined "diagonal zeroed" of Bogoychev, 2021); or zero. Biases become 0, LayerNorms 1 and 0, '
        "rows of embeddings get length 1. Default: model",
        "INIT",
        choices=tuple(freeze_spec.FROZEN_INITS),
        needs=("freeze", "freeze_except"),
    )
    start_encoder_from: Optional[str] = option(
        None,
        "start the encoder from the encoder of another model of the same shape and dictionary, a translation model or a RoBERTa: "
        "a checkpoint or an export. --freeze encoder then keeps it as it was trained",
        "CHECKPOINT",
    )
    start_decoder_from: Optional[str] = option(
        None,
        "start the decoder from the decoder of a translation model or a language model; with a language model the attention to the "
        "source is new",
        "CHECKPOINT",
    )
    frozen_adapter: Optional[str] = option(
        None,
        "train a small change of every frozen matrix of attention and feed-forward blocks, 0 at the start: lora, a product of "
        "two trained matrices (Hu et al., 2021), or vera, trained vectors around two random matrices that all depths share "
        "(Kopiczko et al., 2024)",
        "ADAPTER",
        choices=ADAPTERS,
    )
    frozen_adapter_rank: int = option(
        8,
        "rank of the change that --frozen-adapter trains. Default: 8",
        "R",
        at_least=1,
        needs=("frozen_adapter",),
    )
    frozen_adapter_scale: bool = option(
        False,
        "train a factor of each matrix that --frozen-adapter changes, too, 1 at the start",
        needs=("frozen_adapter",),
    )


def check_components(options: Namespace) -> None:
    """Refuse freeze specs that do not parse, and values of the other flags that break their rules.

    Raises:
        InputError: one line with the flag.
    """
    for flag, spec in (("--freeze", options.freeze), ("--freeze-except", options.freeze_except)):
        if spec:
            freeze_spec.parse(spec, flag)
    check(options, ComponentOptions)
    noise = read(ModelFlags, options).quant_noise_scalar
    if noise and options.frozen_adapter:
        raise InputError(
            f"--quant-noise-scalar {noise}: not with --frozen-adapter, whose layers it cannot replace; leave one of them out"
        )
