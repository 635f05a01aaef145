"""The flags that freeze components of our models and of fairseq's models, and checks of these flags."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

from ..plan import freeze_spec
from .fairseq_flags import ModelFlags
from .flags import SEED, check, option
from .number_rules import collect, refuse
from .reading import read
from .speed_options import FreezeCacheOptions

ADAPTERS = ("lora", "vera")


@dataclass
class ComponentOptions(FreezeCacheOptions):
    """The flags that freeze components, and the seed of the random tensors."""

    reservoir_seed: int = option(SEED, "seed of the frozen tensors. Default: --seed", "N")
    freeze: Optional[str] = option(
        None,
        "components to freeze at their initial values, in addition to the frozen layers of a layer plan. Items, separated by commas: "
        "[encoder.|decoder.][layers.<i>[-<j>].][<component>], where <component> is one of emb, att, self_att, cross_att, q, k, v, o, "
        "mix, ffn, fc1, fc2, ln, pos, out, other, bias. Example: emb,encoder.ffn",
        "SPEC",
    )
    freeze_except: Optional[str] = option(
        None,
        "freeze all components except these, written as for --freeze. Together with --freeze: freeze the components of --freeze except "
        "these. An item that is only a component is ignored if the model does not have this component, for example pos with sinusoidal "
        "positions. Example: ln,pos,emb,out",
        "SPEC",
    )
    frozen_init: str = option(
        "model",
        "initial values of the components that --freeze and --freeze-except freeze. model: the model's own values, drawn from --seed. "
        "orthogonal, glorot, kaiming_uniform, signed_constant: each matrix is drawn from --reservoir-seed and its name. diagonal: ones "
        "on the diagonal and zeros elsewhere, also in matrices that are not square (the likely meaning of "
        '"diagonal zeroed", undefined in Bogoychev, 2021). zero: zeros. With every value except model, biases become 0, LayerNorms get '
        "gain 1 and bias 0, and rows of embeddings get length 1. Default: model",
        "INIT",
        choices=tuple(freeze_spec.FROZEN_INITS),
        needs=("freeze", "freeze_except"),
    )
    start_encoder_from: Optional[str] = option(
        None,
        "initialise the encoder with the encoder of another translation model or of a RoBERTa. Give a checkpoint or an export with the "
        "same shape and dictionary. With --freeze encoder, the encoder is frozen at these trained values",
        "CHECKPOINT",
    )
    start_decoder_from: Optional[str] = option(
        None,
        "initialise the decoder with the decoder of another translation model or of a language model. Give a checkpoint or an export "
        "with the same shape and dictionary. A language model has no attention to the source, so this attention gets new initial values",
        "CHECKPOINT",
    )
    frozen_adapter: Optional[str] = option(
        None,
        "train an adapter for every frozen matrix of attention and feed-forward blocks. The adapter is a low-rank matrix that is added to "
        "the frozen matrix and starts at 0. lora: a product of two trained matrices (Hu et al., 2021). vera: a product of two random "
        "matrices, which all layers share, scaled by trained vectors (Kopiczko et al., 2024)",
        "ADAPTER",
        choices=ADAPTERS,
    )
    frozen_adapter_rank: int = option(
        8,
        "rank of the adapters of --frozen-adapter. Default: 8",
        "R",
        at_least=1,
        needs=("frozen_adapter",),
    )
    frozen_adapter_scale: bool = option(
        False,
        "with --frozen-adapter, also train one scalar for each adapter. The frozen matrix is multiplied by this scalar, which is 1 at the "
        "start",
        needs=("frozen_adapter",),
    )


def check_components(options: Namespace) -> None:
    """Check the values of ``ComponentOptions``, including the freeze specs."""
    found: list[str] = []
    for flag, spec in (("--freeze", options.freeze), ("--freeze-except", options.freeze_except)):
        with collect(found):
            if spec:
                freeze_spec.parse(spec, flag)
    with collect(found):
        check(options, ComponentOptions)
    noise = read(ModelFlags, options).quant_noise_scalar
    if noise and options.frozen_adapter:
        found.append(
            f"--quant-noise-scalar {noise}: cannot be combined with --frozen-adapter, because quantization noise does not support "
            "adapters; remove one of these flags"
        )
    refuse(found)
