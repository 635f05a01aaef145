"""``--retain-dropout-modules``: dropout stays on in the modules of the named classes and of their subclasses, and only there."""

from argparse import Namespace

import pytest
import torch
from fairseq import options
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import BaseFairseqModel
from fairseq.modules.fairseq_dropout import FairseqDropout
from omegaconf import OmegaConf

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import retained_dropout
from fairseq_reservoir.options import generation_rules
from tests.support.building import build, build_lm, build_supermask

MODELS = {
    "plain layers": lambda: build("LF", "L"),
    "rezero": lambda: build("LF", "L", rezero=True),
    "a language model with rezero": lambda: build_lm(plan="LF", rezero=True),
    "masks": lambda: build_supermask(),
}


def prepared(model, modules):
    """Prepare a model for inference with the flags of fairseq-generate. Return the paths of modules whose dropout is on."""
    values = {"retain_dropout": True, "retain_dropout_modules": modules}
    generation = OmegaConf.merge(OmegaConf.structured(GenerationConfig()), values)
    model.prepare_for_inference_(Namespace(generation=generation))
    return {
        name.rpartition(".")[0]
        for name, module in model.named_modules()
        if isinstance(module, FairseqDropout) and module.apply_during_inference
    }


@pytest.mark.parametrize(
    "name, modules, expected",
    [
        ("plain layers", "TransformerEncoderLayer", {"encoder.layers.0"}),
        ("plain layers", "TransformerEncoderLayerBase", {"encoder.layers.0"}),
        ("rezero", "TransformerEncoderLayer", {"encoder.layers.0"}),
        ("rezero", '["TransformerModel", "TransformerEncoder","TransformerDecoderLayer"]', {"encoder", "decoder.layers.0"}),
        ("rezero", ["RezeroEncoderLayer", "FeedForward"], {"encoder.layers.0", "encoder.layers.1.ffn"}),
        ("a language model with rezero", "TransformerDecoder,TransformerDecoderLayer", {"decoder", "decoder.layers.0"}),
        ("masks", "MultiheadAttention,TransformerDecoder", {
            "decoder", *(f"encoder.layers.{i}.self_attn" for i in range(3)),
            *(f"decoder.layers.{i}.{attention}" for i in range(2) for attention in ("self_attn", "encoder_attn")),
        }),
    ],
)  # fmt: skip
def test_names_of_classes_and_base_classes(name, modules, expected):
    assert prepared(MODELS[name](), modules) == expected


def test_all_without_names():
    assert {"encoder", "encoder.layers.0", "encoder.layers.1.ffn", "decoder"} < prepared(MODELS["rezero"](), None)


def test_plain_fairseq_does_not_find_its_own_layers(monkeypatch):
    plain = BaseFairseqModel.make_generation_fast_.__wrapped__
    monkeypatch.setattr(BaseFairseqModel, "make_generation_fast_", plain)
    assert prepared(MODELS["plain layers"](), ["TransformerEncoderLayer"]) == set()


@pytest.mark.parametrize(
    "modules, said",
    [
        ("Layer", "--retain-dropout-modules Layer: the model has no module Layer; choose from FeedForward, MultiheadAttention, "
         "TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer"),
        ("TransformerModel", "--retain-dropout-modules TransformerModel: these modules have no named dropout; choose from FeedForward, "),
        ("", "--retain-dropout-modules : these modules have no named dropout; choose from "),
    ],
)  # fmt: skip
def test_other_names_are_refused(modules, said):
    with pytest.raises(InputError) as error:
        prepared(MODELS["rezero"](), modules)
    assert str(error.value).startswith(said)


class Unnamed(torch.nn.Module):
    """fairseq retains dropout by ``module_name``, which this module does not give."""

    def __init__(self):
        super().__init__()
        self.dropout_module = FairseqDropout(0.1)


def test_a_module_of_unnamed_dropout_is_not_a_choice():
    model = build("LF", "L")
    model.encoder.own = Unnamed()
    with pytest.raises(InputError) as error:
        prepared(model, "Unnamed")
    assert str(error.value) == (
        "--retain-dropout-modules Unnamed: these modules have no named dropout; choose from FeedForward, MultiheadAttention,"
        " TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer"
    )
    assert prepared(model, "Unnamed,TransformerEncoderLayer") == {"encoder.layers.0"}


def test_a_model_of_unnamed_dropout():
    with pytest.raises(InputError, match="^--retain-dropout-modules Unnamed: the model has no named dropout$"):
        retained_dropout._matching(Unnamed(), "Unnamed")


def test_the_flag_needs_retain_dropout():
    parser = options.get_generation_parser()
    flags = options.parse_args_and_arch(parser, ["data", "--path", "model.pt", "--retain-dropout-modules", "X"])
    with pytest.raises(InputError, match="^--retain-dropout-modules X: needs --retain-dropout$"):
        generation_rules.check(flags)
