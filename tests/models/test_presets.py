"""Presets have fairseq's sizes, and the command line's defaults equal those of the dataclass."""

import dataclasses
import math
from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_reservoir.models.reservoir.transformer import PRESETS
from fairseq_reservoir.options.for_fairseq.namespaces import as_namespace
from fairseq_reservoir.options.for_fairseq.transformer import ReservoirTransformerConfig
from fairseq_reservoir.options.layer_options import ReservoirOptions

OURS = {field.name for field in dataclasses.fields(ReservoirOptions)}


def options(arch, **given):
    args = Namespace(**given)
    ARCH_CONFIG_REGISTRY[arch](args)
    return vars(args)


@pytest.mark.parametrize("name", ["iwslt_de_en", "wmt_en_de", "wmt_en_de_big"])
def test_sizes_are_fairseqs(name):
    ours, theirs = options(f"reservoir_transformer_{name}"), options(f"transformer_{name}")
    assert {k: v for k, v in theirs.items() if ours[k] != v} == {}


@pytest.mark.parametrize("name, depth", [("iwslt_de_en_2dec", 2), ("wmt_en_de_1dec", 1)])
def test_shallow_decoders_are_the_papers(name, depth):
    ours, theirs = options(f"reservoir_transformer_{name}"), options(f"transformer_{name.rsplit('_', 1)[0]}")
    changed = {k: (v, ours[k]) for k, v in theirs.items() if ours[k] != v}
    assert changed == {"decoder_layers": (6, depth), "share_decoder_input_output_embed": (False, True)}


def test_wider_masks_have_the_sizes_and_attention_dropout_of_the_big_model():
    """The recipe, examples/one_layer_supermask/papers.sh, sets ``--dropout 0.2`` and tied output in both models."""
    ours, theirs = options("supermask_one_layer_transformer_wider_wmt_en_de"), options("transformer_wmt_en_de_big")
    changed = {k: (v, ours[k]) for k, v in theirs.items() if ours[k] != v}
    assert changed == {"dropout": (0.3, 0.1), "share_decoder_input_output_embed": (False, True)}
    assert ours["attention_dropout"] == 0.1


def test_study_is_128_512_with_3_and_2_layers():
    study = options("reservoir_transformer_study")
    sizes = ["encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_layers", "decoder_layers", "decoder_embed_dim"]
    assert [study[s] for s in sizes] == [128, 512, 3, 2, 128]
    assert (study["reservoir_encoder"], study["reservoir_decoder"]) == ("LLL", "LL")


def test_the_command_lines_defaults_are_the_dataclasss():
    line, hydra = options("reservoir_transformer"), vars(as_namespace(ReservoirTransformerConfig()))
    resolved = {"reservoir_encoder": "LLLLLL", "reservoir_decoder": "LLLLLL", "encoder_layers": 6, "decoder_layers": 6}
    different = {k: (line[k], v) for k, v in {**hydra, **resolved}.items() if k in line and line[k] != v}
    assert different == {}


@pytest.mark.parametrize("preset", ["", *(f"_{name}" for name in PRESETS)])
def test_applying_a_preset_again_changes_nothing(preset):
    """fairseq applies it when it parses flags, and again when it builds a model from a checkpoint."""
    given = {"reservoir_count": 1, "reservoir_type": "transformer", "reservoir_decoder": "LT"}
    once = options(f"reservoir_transformer{preset}", **given)
    assert options(f"reservoir_transformer{preset}", **once) == once
    assert once["reservoir_encoder"].count("T") == 1 and once["decoder_layers"] == 2


def test_every_flag_has_help_and_no_flag_of_ours_is_redirected_by_fairseq():
    for name in OURS - {"_name"}:
        assert ReservoirOptions.__dataclass_fields__[name].metadata["help"]
        assert not name.startswith(("encoder_", "decoder_", "quant_noise_"))


@pytest.mark.parametrize(
    "arch, name",
    [("reservoir_transformer_tiny", "reservoir_seed"), ("supermask_one_layer_transformer_tiny", "mask_seed")],
)
def test_the_seed_of_a_bare_namespace(arch, name):
    assert (
        options(arch, seed=7)[name] == 7
        and options(arch, **{"seed": 7, name: 3})[name] == 3
        and options(arch)[name] == 1
    )


def test_small_file_has_four_signed_coats():
    """3.03 bits per weight: -4 ... 4 with shares of 20 % for 0, 15 for +-1, 12.5 for +-2, 7.5 for +-3 and 5 for +-4."""
    given = options("supermask_one_layer_transformer_small_file")
    assert (given["mask_kind"], given["mask_keep_ratio"], given["mask_coats"]) == ("signed", 0.8, "0.5,0.25,0.1")
    assert given["share_all_embeddings"] and given["encoder_embed_dim"] == given["decoder_embed_dim"] == 128
    kept = [given["mask_keep_ratio"], *map(float, given["mask_coats"].split(","))]
    shares = [1 - kept[0], *((k - below) / 2 for k, below in zip(kept, [*kept[1:], 0]) for _ in "+-")]
    assert sum(-share * math.log2(share) for share in shares) == pytest.approx(3.03, abs=0.01)
