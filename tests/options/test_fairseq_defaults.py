"""Defaults that this package repeats for flags of fairseq equal fairseq's defaults."""

import argparse
from dataclasses import MISSING, fields

import pytest
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterionConfig
from fairseq.criterions.sentence_prediction import SentencePredictionConfig
from fairseq.criterions.sentence_ranking import SentenceRankingCriterion
from fairseq.dataclass.configs import CheckpointConfig, CommonConfig, GenerationConfig
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from fairseq.tasks.language_modeling import LanguageModelingConfig

from fairseq_reservoir.options import fairseq_flags, translation_defaults
from fairseq_reservoir.options.for_fairseq import namespaces


def defaults_of(*dataclasses):
    """Name of a flag -> its defaults in fairseq's dataclasses. References such as ``${common.seed}`` are left out."""
    found = {}
    for one in (field for dataclass in dataclasses for field in fields(dataclass)):
        if one.default is not MISSING and not str(one.default).startswith("${"):
            found.setdefault(one.name, set()).add(one.default)
    return found


def ranking_head():
    SentenceRankingCriterion.add_args(parser := argparse.ArgumentParser())
    return {"ranking_head_name": {parser.get_default("ranking_head_name")}}


COMMON, SEARCH = defaults_of(CommonConfig), defaults_of(GenerationConfig)
FAIRSEQS = {
    "ModelFlags": COMMON | defaults_of(TransformerConfig, TransformerLanguageModelConfig),
    "TaskFlags": defaults_of(SentencePredictionConfig) | ranking_head(),
    "CriterionFlags": defaults_of(LabelSmoothedCrossEntropyCriterionConfig),
    "SearchFlags": SEARCH,
    "CheckpointFlags": COMMON | defaults_of(CheckpointConfig),
}


def repeated():
    """(dataclass, flag, default) of every default in ``fairseq_flags`` that is not None."""
    return [
        (name, one.name, one.default)
        for name, dataclass in vars(fairseq_flags).items()
        if isinstance(dataclass, type) and dataclass.__module__ == fairseq_flags.__name__
        for one in fields(dataclass)
        if one.default is not None
    ]


@pytest.mark.parametrize("name, flag, default", repeated())
def test_flags_have_the_defaults_of_fairseq(name, flag, default):
    assert FAIRSEQS[name][flag] == {default}


def test_other_groups_have_the_defaults_of_fairseq():
    fairseqs = COMMON | defaults_of(LanguageModelingConfig)
    assert {flag: {default} for flag, default in namespaces._OF_OTHER_GROUPS.items()} == {
        flag: fairseqs[flag] for flag in namespaces._OF_OTHER_GROUPS
    }


def test_translate_has_the_defaults_of_fairseq_generate():
    own = {
        "beam": translation_defaults.BEAM,
        "max_len_b": translation_defaults.MAX_LEN_B,
        "lenpen": translation_defaults.LENPEN,
    }
    assert {flag: {default} for flag, default in own.items()} == {flag: SEARCH[flag] for flag in own}
