"""Flags and architectures of the papers' code, pasted into our commands, are answered with ours."""

import re
from pathlib import Path

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.fairseq_repairs.papers_flags import _ARCHITECTURES, _FLAGS, answer_for_architecture, answers
from fairseq_reservoir.models.supermask.transformer import PRESETS
from fairseq_reservoir.options.supermask_options import MaskOptions
from tests.support.choices import choices_of
from tests.support.commands import error_of

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-the-papers.md").read_text()


def test_a_pasted_command(tmp_path):
    """The mask flags of the README of the one-layer paper's code."""
    pasted = (
        "--arch supermask_one_layer_transformer --prune-ratio 0.5 --prune-method=super_mask --mask-init standard"
        " --share-mask layer_weights --init kaiming_uniform --scale-fan --no-such 1"
    )
    line, status = error_of(tmp_path / "none", *pasted.split(), begin=["--cpu", "--optimizer", "adam"])
    assert status == 2 and line == (
        "fairseq-train: error: --prune-ratio: in this package --mask-keep-ratio 0.5"
        "; --prune-method super_mask: in this package --mask-scores magnitude"
        "; --mask-init: this package has no such option; remove it"
        "; --share-mask layer_weights: in this package --mask-share layer"
        "; --init kaiming_uniform: in this package --mask-init-weights kaiming_uniform"
        "; --scale-fan: in this package this is the default; remove it"
        "; unrecognized arguments: --no-such 1\n"
    )


def test_an_architecture(tmp_path):
    line, _ = error_of(tmp_path / "none", "--arch", "masked_transformer_iwslt_de_en", begin=["--cpu"])
    said = "--arch masked_transformer_iwslt_de_en: in this package --arch supermask_one_layer_transformer_iwslt_de_en"
    assert line == f"fairseq-train: error: {said}\n"
    with pytest.raises(SystemExit, match=said):
        cli.main(["plan", "--arch", "masked_transformer_iwslt_de_en"])
    assert answer_for_architecture("transformer") == ""


def test_other_words_stay_in_order():
    assert answers(["a", "--no-such", "1", "--no-such=2"]) == ([], ["a", "--no-such", "1", "--no-such=2"])
    assert answers(["--prune-ratio"])[0] == ["--prune-ratio: in this package --mask-keep-ratio VALUE"]
    assert answers(["--share-mask", "head_row"])[0] == [
        "--share-mask head_row: this package has no such option; remove it"
    ]


def test_our_flags_exist_with_these_values():
    for ours in _FLAGS.values():
        for answer in ours.values() if isinstance(ours, dict) else [ours]:
            if not (answer or "").startswith("--"):
                continue
            flag, value = answer.split(" ")
            name = flag.removeprefix("--").replace("-", "_")
            assert name in MaskOptions.__dataclass_fields__ or flag == "--mask-embeddings-from"
            if value not in ("{}", "CHECKPOINT"):
                assert value in choices_of(MaskOptions)[name]
    presets = {f"supermask_one_layer_transformer_{name}" for name in PRESETS}
    ours = {name for name in _ARCHITECTURES.values() if name.count("_") > 3}
    assert ours <= presets


def test_the_page_names_every_flag():
    named = set(re.findall(r"--[a-z-]+", PAGE))
    assert _FLAGS.keys() - named <= {"--mask-regularization-type", "--mask-regularization-lambda"}
