"""Every numeric flag of fairseq has a rule. A rule allows every value that fairseq can use."""

import argparse
import dataclasses
import math
import typing
from argparse import Namespace

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass import configs
from fairseq.models import MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY
from omegaconf import OmegaConf

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.options import fairseq_rules
from fairseq_reservoir.options.number_rules import Rule, errors

GROUPS = "common common_eval distributed_training dataset optimization checkpoint bmuf generation eval_lm interactive ema".split()
TASKS = "translation language_modeling masked_lm sentence_prediction".split()
MODELS = "transformer transformer_align transformer_lm roberta masked_lm lstm lstm_lm fconv lightconv lightconv_lm bart".split()

# Flags that need no rule of their own, with the reason.
WITHOUT_RULE = {
    "task.seed": "the same value as common.seed",
    "model.alignment_heads": "transformer_align compares it with the number of heads later",
    "model.alignment_layer": "transformer_align compares it with the number of layers later",
    "model.adaptive_softmax_cutoff": "an ascending list; see options.flags",
    "model.encoder_glu": "true or false",
    "model.decoder_glu": "true or false",
    "model.weight_softmax": "true or false",
}


def is_numeric(kind):
    inner = typing.get_args(kind)
    return kind in (int, float) or (
        bool(inner) and inner[0] in (int, float) and typing.get_origin(kind) in (typing.Union, list)
    )


def fields_of(group, dataclass):
    """Yield the names of the numeric fields, except references to other groups such as ``${optimization.lr}``."""
    for field in dataclasses.fields(dataclass):
        if is_numeric(field.type) and str(field.default).rpartition(".")[2] != field.name + "}":
            yield f"{group}.{field.name}"


def flags_of(group, component):
    """Return the names of the numeric flags that a class without a dataclass adds to the parser."""
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    component.add_args(parser)
    return [f"{group}.{action.dest}" for action in parser._actions if action.type not in (None, str)]


def every_numeric_flag():
    found = set()
    for group in GROUPS:
        (field,) = [field for field in dataclasses.fields(configs.FairseqConfig) if field.name == group]
        found |= set(fields_of(group, field.type))
    for group, registry in (("optimizer", OPTIMIZER_REGISTRY), ("lr_scheduler", LR_SCHEDULER_REGISTRY),
                            ("criterion", CRITERION_REGISTRY)):  # fmt: skip
        for name, component in registry.items():
            dataclass = REGISTRIES[group]["dataclass_registry"].get(name)
            if dataclass is None and hasattr(component, "add_args"):
                found |= set(flags_of(group, component))
            elif dataclass is not None:
                found |= set(fields_of(group, dataclass))
    for group in ("bpe", "scoring"):
        for dataclass in REGISTRIES[group]["dataclass_registry"].values():
            found |= set(fields_of(group, dataclass)) if dataclass else set()
    for name in TASKS:
        found |= set(fields_of("task", TASK_REGISTRY[name].__dataclass))
    found |= set(flags_of("task", TASK_REGISTRY["multilingual_masked_lm"]))
    for name in MODELS:
        found |= {flag for flag in flags_of("model", MODEL_REGISTRY[name])}
    return found


def test_every_numeric_flag_has_a_rule():
    flags = every_numeric_flag()
    ruled = {rule.place for rule in fairseq_rules.RULES}
    assert len(flags) > 180
    assert flags - ruled - WITHOUT_RULE.keys() == set()
    assert not ruled & WITHOUT_RULE.keys()


def test_the_defaults_of_fairseq_keep_the_rules():
    for group in GROUPS:
        (field,) = [field for field in dataclasses.fields(configs.FairseqConfig) if field.name == group]
        assert errors({group: vars(field.type())}, fairseq_rules.RULES) == []
    for group in ("optimizer", "lr_scheduler", "criterion"):
        for name, dataclass in REGISTRIES[group]["dataclass_registry"].items():
            config = {group: vars(dataclass()) | {"_name": name}, "optimization": {"lr": [0.25]}}
            assert dataclass is None or errors(config, fairseq_rules.RULES) == []
    for name in TASKS[:3]:  # --num-classes has a default that fairseq refuses
        config = {"task": vars(TASK_REGISTRY[name].__dataclass()) | {"_name": name}}
        assert errors(config, fairseq_rules.RULES) == []


NAN, INF = math.nan, math.inf
# Columns: place of a flag, its value, and the end of the message, or None if fairseq can use the value.
VALUES = [
    ("optimization.lr", [-1], "must be at least 0"),
    ("optimization.lr", [0], None),
    ("optimization.lr", [1e-3, NAN], "must be at least 0"),
    ("optimization.max_update", -5, "must be at least 0"),
    ("optimization.max_update", 10**16, "must have at most 15 digits"),
    ("optimization.max_update", 0, None),
    ("optimization.max_epoch", -1, "must be at least 0"),
    ("optimization.clip_norm", NAN, "must be at least 0, or -1 or inf for off"),
    ("optimization.clip_norm", -1, None),
    ("optimization.clip_norm", INF, None),
    ("optimization.stop_min_lr", INF, "must be from 0 to below --lr, 0.25, or -1 for off"),
    ("optimization.stop_min_lr", 0.25, "must be from 0 to below --lr, 0.25, or -1 for off"),
    ("optimization.stop_min_lr", -1, None),
    ("optimizer.adam_eps", INF, "must be at least 0"),
    ("optimizer.weight_decay", -1, "must be at least 0"),
    ("optimizer.momentum", 1, "must be from 0 to below 1"),
    ("optimizer.decay_rate", -0.8, None),
    ("optimizer.decay_rate", 0.8, "must be at most 0"),
    ("lr_scheduler.end_learning_rate", -1, "must be at least 0"),
    ("lr_scheduler.total_num_update", 0, "must be greater than 0"),
    ("lr_scheduler.warmup_init_lr", 5, "must be from 0 to 1, or -1 for none"),
    ("criterion.label_smoothing", 2, "must be from 0 to below 1"),
    ("model.dropout", 1, "must be from 0 to below 1"),
    ("model.encoder_layerdrop", 1, "must be from 0 to below 1"),
    ("model.encoder_layers", 0, None),
    ("ema.ema_decay", NAN, "must be from 0 to below 1"),
    ("generation.lenpen", NAN, "must be from -10 to 10"),
    ("generation.lenpen", -2.5, None),
    ("generation.beam", 0, "must be from 1 to 10000"),
    ("generation.nbest", 0, "must be at least 1"),
    ("generation.unkpen", INF, None),
    ("generation.unkpen", -INF, "must be a finite number, or inf for no <unk>"),
    ("generation.sampling_topk", -1, None),
    ("task.tokens_per_sample", 0, "must be at least 1"),
    ("dataset.max_tokens", -1, None),
    ("dataset.max_tokens", -2, "must be at least 1, or 0 or -1 for no limit"),
    ("lr_scheduler.lr_period_updates", -2, "must be greater than 0, or -1 or 0 for --max-update minus --warmup-updates"),
    ("lr_scheduler.lr_shrink", -0.5, "must be from 0 to 10"),
    ("dataset.max_tokens", None, None),
    ("dataset.shard_id", 1, "must be from 0 to below --num-shards, 1"),
    ("checkpoint.keep_last_epochs", -1, None),
    ("checkpoint.keep_last_epochs", -2, "must be at least 0, or -1 for off"),
]  # fmt: skip
AROUND = {"optimization": {"lr": [0.25]}, "generation": {"beam": 5}, "dataset": {"num_shards": 1}}


@pytest.mark.parametrize("place, value, message", VALUES, ids=[f"{place}={value}" for place, value, _ in VALUES])
def test_values(place, value, message):
    group, name = place.split(".")
    config = AROUND | {group: AROUND.get(group, {}) | {name: value}}
    as_namespace = Namespace(**{name: value for values in config.values() for name, value in values.items()})
    for given in (config, OmegaConf.create(config), as_namespace):
        found = errors(given, fairseq_rules.RULES)
        assert len(found) == (message is not None), found
        assert message is None or (
            found[0].startswith("--" + name.replace("_", "-")) and found[0].endswith(f": {message}")
        )


# Unusual values with which plain fairseq can train or search.
UNUSUAL = [
    {"lr_scheduler": {"_name": "inverse_sqrt", "warmup_init_lr": 0.25}},
    {"lr_scheduler": {"_name": "inverse_sqrt", "warmup_init_lr": 0.5}},  # the warm-up decreases to --lr, 0.25
    {"lr_scheduler": {"_name": "cosine", "warmup_init_lr": 2.0}, "optimization": {"lr": [4.0]}},
    {"lr_scheduler": {"_name": "cosine", "lr_period_updates": 0.0, "lr_shrink": 1.5}},
    {"lr_scheduler": {"_name": "fixed", "lr_shrink": 1.5}},
    {"lr_scheduler": {"_name": "reduce_lr_on_plateau", "lr_shrink": 0.0}},
    {"dataset": {"max_tokens": 0, "batch_size": 8, "max_tokens_valid": 0, "batch_size_valid": 8}},
    {"dataset": {"max_tokens": 4096, "batch_size": 0}},
    {"dataset": {"max_tokens": -1, "batch_size": None}},
    {"generation": {"beam": 5, "nbest": 10}},
    {"model": {"_name": "masked_lm", "num_segment": 0}},
    {"task": {"_name": "other_task", "mask_prob": 1.0}},
]


@pytest.mark.parametrize("config", UNUSUAL, ids=str)
def test_unusual_values_that_fairseq_accepts(config):
    fairseq_rules.check(OmegaConf.create(AROUND | config))
    as_namespace = {name: value for values in (AROUND | config).values() for name, value in values.items()}
    fairseq_rules.check(Namespace(**as_namespace, **{group: values.get("_name") for group, values in config.items()}))


@pytest.mark.parametrize(
    "limits, message",
    [
        ({"max_tokens": 0}, "--max-tokens 0: means no limit, and --batch-size sets no limit either"),
        ({"max_tokens": None, "batch_size": 0}, "--batch-size 0: means no limit, and --max-tokens sets no limit either"),
        ({"max_tokens": 0, "batch_size": -1}, "--max-tokens 0: means no limit, and --batch-size sets no limit either"),
        ({"max_tokens": 9, "max_tokens_valid": 0}, "--max-tokens-valid 0: means no limit, and --batch-size-valid sets no limit either"),
    ],
)  # fmt: skip
def test_a_batch_has_a_limit(limits, message):
    for given in ({"dataset": limits}, Namespace(**limits)):
        with pytest.raises(InputError, match=f"^{message}; set a limit, for example --max-tokens 4096$"):
            fairseq_rules.check(given)


@pytest.mark.parametrize("task", ["masked_lm", "multilingual_masked_lm"])
def test_shares_of_masked_tokens(task):
    for task_options, message in (
        ({"mask_prob": 1.0}, "--mask-prob 1: must be greater than 0 and below 1"),
        ({"random_token_prob": 1.5}, "--random-token-prob 1.5: must be from 0 to 1"),
        ({"tokens_per_sample": 1}, "--tokens-per-sample 1: must be at least 2"),
    ):
        with pytest.raises(InputError, match=f"^{message} with --task {task}"):
            fairseq_rules.check(Namespace(task=task, **task_options))


def test_rules_of_a_choice():
    def found(choice, **values):
        return errors({"lr_scheduler": values | {"_name": choice}, "optimization": {"lr": [0.5]}}, fairseq_rules.RULES)

    assert found("inverse_sqrt", warmup_updates=0) == [
        "--warmup-updates 0: must be at least 1 with --lr-scheduler inverse_sqrt"
    ]
    assert found("fixed", warmup_updates=0) == found("fixed", lr_shrink=1.0) == []
    assert found("reduce_lr_on_plateau", lr_shrink=1.0) == [
        "--lr-shrink 1: must be from 0 to below 1 with --lr-scheduler reduce_lr_on_plateau"
    ]


def test_every_error_is_returned_and_three_are_named():
    config = {"optimization": {"lr": [-1], "clip_norm": NAN, "max_epoch": -1, "max_update": -1}}
    assert len(errors(config, fairseq_rules.RULES)) == 4
    with pytest.raises(InputError, match=r"--max-epoch -1: .*; --max-update -1: .*; --lr -1: .*; and 1 more$"):
        fairseq_rules.check(config)


def test_nested_and_composite_configurations():
    """hydra has nested groups for the options of a Transformer, and a composite optimizer."""
    nested = OmegaConf.create({"model": {"_name": "m", "encoder": {"layers": 2, "layerdrop": 1.0}}})
    assert errors(nested, fairseq_rules.RULES) == ["--encoder-layerdrop 1: must be from 0 to below 1"]
    groups = {"a": {"lr": [0.1], "optimizer": {"_name": "adam", "adam_eps": -1.0}, "lr_scheduler": None}}
    with pytest.raises(InputError, match="--adam-eps -1: must be at least 0"):
        fairseq_rules.check(OmegaConf.create({"optimizer": {"_name": "composite", "groups": groups}}))


@pytest.mark.parametrize("form", [lambda options: Namespace(**options), OmegaConf.create])
def test_options_of_a_model(form):
    with pytest.raises(InputError, match="^--encoder-attention-heads 0: must be from 1 to 1000000$"):
        fairseq_rules.check_model(form({"encoder_attention_heads": 0, "encoder_embed_dim": 16}))


def test_a_custom_rule():
    rule = Rule("mine.share", above=0, at_most=1, why="a share")
    assert errors({"mine": {"share": 0}}, [rule]) == ["--share 0: must be greater than 0 and at most 1: a share"]
    assert errors({"mine": {"share": True}}, [rule]) == errors({"mine": {"share": "0"}}, [rule]) == []
