"""The flags that freeze components, of our models and of fairseq's, and what is refused of them."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

from omegaconf import II

from ..errors import InputError, flag_of
from ..plan import freeze_spec
from .flags import option
from .freeze_cache_options import FreezeCacheOptions, check_cache

ADAPTERS = ("lora", "vera")


@dataclass
class ComponentOptions(FreezeCacheOptions):
    """The flags that freeze components, of our models and of fairseq's, and the seed of what is random."""

    reservoir_seed: int = option(II("common.seed"), "seed of the frozen tensors. Default: --seed", "N")
    freeze: Optional[str] = option(
        None,
        "further components to freeze at their initial values: a comma list of "
        "[encoder.|decoder.][layers.<i>[-<j>].][<component>], component one of emb, att, self_att, cross_att, q, k, v, o, "
        "mix, ffn, fc1, fc2, ln, pos, out, other, bias. Example: emb,encoder.ffn",
        "SPEC",
    )
    freeze_except: Optional[str] = option(
        None,
        "freeze everything but these components, written as for --freeze; with --freeze, everything that it names but these. Of a list, a "
        "component alone that the model does not have, as pos where positions are sinusoidal, is passed over. Example: ln,pos,emb,out",
        "SPEC",
    )
    frozen_init: str = option(
        "model",
        "initial values of what --freeze and --freeze-except freeze: model, those the model starts with (they follow --seed); "
        "or matrices drawn from --reservoir-seed and their names, each projection by itself: orthogonal, glorot, "
        "kaiming_uniform or signed_constant; or diagonal, ones on the diagonal and zeros elsewhere, square or not (the likely "
        'reading of the undefined "diagonal zeroed" of Bogoychev, 2021); or zero. Biases become 0, LayerNorms 1 and 0, '
        "rows of embeddings get length 1. Default: model",
        "INIT",
    )
    start_encoder_from: Optional[str] = option(
        None,
        "start the encoder from that of another model of the same shape and dictionary, a translation model's or a RoBERTa's: "
        "a checkpoint or an export. --freeze encoder then leaves it as it was trained",
        "CHECKPOINT",
    )
    start_decoder_from: Optional[str] = option(
        None,
        "start the decoder likewise, from that of a translation model or of a language model, beside which attention to the source is new",
        "CHECKPOINT",
    )
    frozen_adapter: Optional[str] = option(
        None,
        "train a small change of every frozen matrix of attention and feed-forward blocks, 0 at the start: lora, a product of "
        "two trained matrices (Hu et al., 2021), or vera, trained vectors around two random ones that all depths share "
        "(Kopiczko et al., 2024)",
        "ADAPTER",
    )
    frozen_adapter_rank: int = option(8, "rank of the change that --frozen-adapter trains. Default: 8", "R")
    frozen_adapter_scale: bool = option(
        False, "train a factor of each matrix that --frozen-adapter changes, too, 1 at the start"
    )


def check_components(options: Namespace) -> None:
    """Refuses freeze specs that do not parse, and initial values and adapters that are unknown or for nothing.

    Raises:
        InputError: one line with the flag.
    """
    specs = {flag_of(name): getattr(options, name) for name in ("freeze", "freeze_except")}
    for flag, spec in specs.items():
        freeze_spec.parse(spec or "", flag)
    check_cache(options)
    if options.frozen_init not in freeze_spec.FROZEN_INITS:
        raise InputError(f"--frozen-init {options.frozen_init!r}: choose from {', '.join(freeze_spec.FROZEN_INITS)}")
    if options.frozen_init != "model" and not any(specs.values()):
        raise InputError(f"--frozen-init {options.frozen_init}: has no effect without {' or '.join(specs)}")
    if options.frozen_adapter not in (None, *ADAPTERS):
        raise InputError(f"--frozen-adapter {options.frozen_adapter!r}: choose from {', '.join(ADAPTERS)}")
    noise = getattr(options, "quant_noise_scalar", None)
    if noise and options.frozen_adapter:
        raise InputError(
            f"--quant-noise-scalar {noise}: not with --frozen-adapter, whose layers it cannot replace; leave one of them out"
        )
    rank = options.frozen_adapter_rank
    if rank < 1:
        raise InputError(f"--frozen-adapter-rank {rank}: must be at least 1")
    if options.frozen_adapter is None and rank != ComponentOptions.frozen_adapter_rank:
        raise InputError(f"--frozen-adapter-rank {rank}: has no effect without --frozen-adapter")
    if options.frozen_adapter is None and options.frozen_adapter_scale:
        raise InputError("--frozen-adapter-scale: has no effect without --frozen-adapter")
