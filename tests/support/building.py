"""Small models for tests, built in this process from options by keyword, without data."""

from argparse import Namespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch.nn import functional

import fairseq_reservoir  # noqa: F401
from fairseq_reservoir.layers import SlotConfig

PAD, EOS = 1, 2
SIZES = {
    "encoder_embed_dim": 8,
    "encoder_ffn_embed_dim": 12,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "dropout": 0.0,
}


def dictionary(size):
    """Dictionary of ``size`` entries, including fairseq's four special symbols."""
    result = Dictionary()
    for number in range(size - len(result)):
        result.add_symbol(f"w{number}")
    return result


def build(encoder="L", decoder="L", arch="reservoir_transformer", words=(20, 20), torch_seed=1, **options):
    """Build a ``reservoir_transformer`` of 8 / 12 dimensions and 2 heads, without dropout, in training mode.

    Args:
        encoder, decoder: layer plans.
        arch: name of the architecture. A preset keeps its sizes.
        words: sizes of the two dictionaries.
        torch_seed: seed of the trained parameters.
        options: further options by fairseq's names; ``reservoir_seed`` defaults to 1.
    """
    sizes = SIZES if arch == "reservoir_transformer" else {}
    options = {"reservoir_encoder": encoder, "reservoir_decoder": decoder, "reservoir_seed": 1, **sizes, **options}
    args = Namespace(arch=arch, **options)
    ARCH_CONFIG_REGISTRY[arch](args)
    source, target = map(dictionary, words)
    torch.manual_seed(torch_seed)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, Namespace(source_dictionary=source, target_dictionary=target))


def slot_config(**changes):
    """Sizes of one slot: 8 / 12 dimensions, 2 heads, no dropout, LayerNorm first, kernels of 3."""
    config = {
        "embed_dim": 8,
        "ffn_dim": 12,
        "heads": 2,
        "depth": 0,
        "memory_dim": 8,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "activation_fn": "relu",
        "norm_first": True,
        "kernel_sizes": (3,),
        "max_positions": 32,
    }
    return SlotConfig(**{**config, **changes})


def sentences(*lengths, seed=1):
    """Sentences of random tokens from a dictionary of 20, each ending in the end of sentence."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.cat([torch.randint(4, 20, (n - 1,), generator=generator), torch.tensor([EOS])]) for n in lengths]


def pad(rows, side="right"):
    """One batch of the sentences ``rows``, padded on one side."""
    width = max(map(len, rows))
    missing = [width - len(row) for row in rows]
    sides = [(0, n) if side == "right" else (n, 0) for n in missing]
    return torch.stack([functional.pad(row, amount, value=PAD) for row, amount in zip(rows, sides)])


def loss(model, source, target):
    """Summed cross-entropy of ``target`` with teacher forcing. Padding counts as a token."""
    return functional.cross_entropy(
        logits(model, source, shift(target)).flatten(0, 1), target.flatten(), reduction="sum"
    )


def shift(target):
    """Decoder input: the end of sentence in front, the last token dropped."""
    return torch.cat([torch.full_like(target[:, :1], EOS), target[:, :-1]], dim=1)


def logits(model, source, prev_output_tokens):
    """Logits (batch, time, vocabulary) of the model."""
    return model(source, None, prev_output_tokens)[0]


def build_supermask(words=(20, 20), torch_seed=1, **options):
    """Build a ``supermask_one_layer_transformer`` of the same sizes, 3 + 2 layers, tied target embedding; ``mask_seed`` is 1."""
    arch = "supermask_one_layer_transformer"
    depths = {"encoder_layers": 3, "decoder_layers": 2, "share_decoder_input_output_embed": True}
    args = Namespace(arch=arch, **{"mask_seed": 1, **SIZES, **depths, **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    source, target = map(dictionary, words)
    torch.manual_seed(torch_seed)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, Namespace(source_dictionary=source, target_dictionary=target))


def build_lm(arch="reservoir_transformer_lm", words=20, torch_seed=1, **options):
    """Build a language model of 8 / 12 dimensions, 2 heads and 2 layers, without dropout. A preset keeps its sizes.

    ``reservoir_seed`` or ``mask_seed`` defaults to 1. A supermask model has the tied embedding of ``build_supermask``.
    """
    sizes = {"decoder_embed_dim": 8, "decoder_ffn_embed_dim": 12, "decoder_attention_heads": 2, "dropout": 0.0}
    defaults = {"reservoir_transformer_lm": sizes | {"reservoir_decoder": options.pop("plan", "LL")}}
    defaults["supermask_one_layer_transformer_lm"] = sizes | {
        "decoder_layers": 2,
        "share_decoder_input_output_embed": True,
    }
    args = Namespace(arch=arch, **{"seed": 1, **defaults.get(arch, {}), **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(torch_seed)
    entries = dictionary(words)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, Namespace(source_dictionary=entries, target_dictionary=entries))


def build_roberta(arch="supermask_one_layer_roberta", words=20, torch_seed=1, **options):
    """Build a RoBERTa of 8 / 12 dimensions, 2 heads and 3 layers, 32 positions and no dropout. The last token is ``<mask>``.

    A preset keeps its sizes. A layer plan determines the depth.
    """
    sizes = {"encoder_embed_dim": 8, "encoder_ffn_embed_dim": 12, "encoder_attention_heads": 2, "encoder_layers": 3}
    if "reservoir_encoder" in options:
        del sizes["encoder_layers"]
    defaults = {"seed": 1, "max_positions": 32, "dropout": 0.0, "attention_dropout": 0.0}
    args = Namespace(arch=arch, **{**defaults, **(sizes if arch.endswith("roberta") else {}), **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    entries = dictionary(words - 1)
    entries.add_symbol("<mask>")
    torch.manual_seed(torch_seed)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, Namespace(source_dictionary=entries))
