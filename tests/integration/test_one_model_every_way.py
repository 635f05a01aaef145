"""A model is the same if its options come as a namespace, from hydra, or merged into its dataclass."""

from argparse import Namespace

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, merge_with_parent
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, build_model
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf

from fairseq_reservoir.models.reservoir.transformer import PRESETS, ReservoirTransformer
from tests.support.letters import RESERVOIRS, WITH_RESERVOIRS

ARCHITECTURES = ["reservoir_transformer", *(f"reservoir_transformer_{name}" for name in PRESETS)]
PLANS = {
    "default plan": [],
    "reservoirs": f"--reservoir-encoder {WITH_RESERVOIRS['encoder']} --reservoir-decoder LC --freeze encoder.layers.0.ffn".split(),
    "widths": "--encoder-embed-dim 32 --decoder-embed-dim 64 --decoder-ffn-embed-dim 48 --reservoir-encoder LG"
    " --reservoir-decoder LC --reservoir-seed 3 --seed 4".split(),
    "count": "--encoder-layers 5 --reservoir-count 2 --reservoir-type transformer --reservoir-placement middle".split(),
}


def tables_of(architecture, flags, task, data, *task_flags):
    """Slot tables of one command line, by the route of its options. The models are on the meta device."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [str(data), *task_flags, "--arch", architecture, "--seed", "3", *flags])
    composed = convert_namespace_to_omegaconf(args)
    model = ARCH_MODEL_REGISTRY[architecture]
    merged = merge_with_parent(MODEL_DATACLASS_REGISTRY[ARCH_MODEL_NAME_REGISTRY[architecture]](), composed.model)
    plain = OmegaConf.create(OmegaConf.to_container(composed.model))
    ways = {
        "namespace": lambda: model.build_model(args, task),
        "composed by hydra": lambda: build_model(composed.model, task),
        "merged from the dataclass": lambda: model.build_model(merged, task),
        "as stored in a checkpoint": lambda: build_model(plain, task, from_checkpoint=True),
        "namespace through fairseq": lambda: build_model(args, task),
    }
    with torch.device("meta"):
        return {way: build().slot_table for way, build in ways.items()}


@pytest.fixture(scope="module")
def task(toy_data):
    flags = options.parse_args_and_arch(options.get_training_parser(), [str(toy_data), "--arch", "transformer"])
    return TranslationTask.setup_task(flags)


# Every plan with one architecture, and every preset with its default plan.
PAIRS = [
    pytest.param(
        architecture,
        plan,
        marks=[] if plan == "default plan" or architecture == "reservoir_transformer" else [pytest.mark.slow],
    )
    for architecture in ARCHITECTURES
    for plan in PLANS
]


@pytest.mark.parametrize("architecture, plan", PAIRS)
def test_slot_tables_are_equal(toy_data, task, architecture, plan):
    assert ARCH_MODEL_REGISTRY[architecture] is ReservoirTransformer
    tables = tables_of(architecture, PLANS[plan], task, toy_data)
    expected = tables["namespace"]
    assert expected.seed == 3
    assert all(table == expected for table in tables.values()), [way for way in tables if tables[way] != expected]
    frozen = {row.kind[0] for row in expected.rows if row.place.startswith("encoder.layers") and row.state == "frozen"}
    assert (
        frozen
        == {"default plan": set(), "reservoirs": set(RESERVOIRS["encoder"]), "widths": {"G"}, "count": {"T"}}[plan]
    )


LANGUAGE_MODELS = {
    "reservoir_transformer_lm": (
        ["--reservoir-decoder", WITH_RESERVOIRS["decoder"], "--freeze", "layers.0.ffn"],
        set(RESERVOIRS["decoder"]),
    ),
    "reservoir_transformer_lm_study": (["--decoder-embed-dim", "32", "--reservoir-decoder-count", "1"], {"F"}),
    "reservoir_transformer_lm_tiny": ([], set()),
    "supermask_one_layer_transformer_lm": (["--mask-share", "none", "--decoder-layers", "3"], set()),
    "supermask_one_layer_transformer_lm_study": (["--mask-embeddings", "frozen", "--decoder-embed-dim", "32"], set()),
}


@pytest.mark.parametrize("architecture", LANGUAGE_MODELS)
def test_slot_tables_of_language_models_are_equal(toy_data, architecture):
    flags, kinds = LANGUAGE_MODELS[architecture]
    as_task = ("--task", "language_modeling", "--tokens-per-sample", "20")
    task = LanguageModelingTask.setup_task(Namespace(data=str(toy_data), output_dictionary_size=-1))
    tables = tables_of(architecture, flags, task, toy_data, *as_task)
    expected = tables["namespace"]
    assert expected.seed == 3
    assert all(table == expected for table in tables.values()), [way for way in tables if tables[way] != expected]
    layers = [row for row in expected.rows if row.place.startswith("decoder.layers")]
    assert {row.kind[0] for row in layers if row.state == "frozen"} == kinds
    if "embed-dim" in " ".join(flags):
        assert next(row for row in expected.rows if "embed_tokens" in row.place).entries[0].shape[1] == 32
