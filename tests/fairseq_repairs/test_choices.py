"""Error messages of unknown flags, which name the choices that have the flag, and of flags that a choice needs."""

import argparse
import sys
from importlib import import_module

import pytest
from fairseq.registry import REGISTRIES

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs.choices import owners_of_unknown, refuse_missing
from tests.support.commands import USER_DIR, error_of

BEGIN = "--cpu --no-save --optimizer adam --batch-size 4".split()


@pytest.mark.parametrize(
    "flags, owners",
    [
        # Flags from a configuration dataclass, and flags from an add_args method. A preset has the flags of its model.
        ("--arch transformer --freeze emb", "--freeze belongs to --arch frozen_transformer, "),
        ("-a transformer_tiny --freeze emb", "--freeze belongs to --arch frozen_transformer_tiny, reservoir_transformer_tiny, "),
        ("--arch=roberta_base --freeze emb", "--freeze belongs to --arch frozen_roberta_base, "),
        ("--arch roberta_base --reservoir-encoder LF", "--reservoir-encoder belongs to --arch reservoir_roberta_base, reservoir_"),
        # This flag is nested in the configuration: encoder.embed_dim.
        ("--arch transformer_lm --encoder-embed-dim 8", "--encoder-embed-dim belongs to --arch transformer, "),
        ("--arch transformer --momentum 0.9", "--momentum belongs to --optimizer nag, sgd, freeze_skip_nag and others"),
        ("--arch transformer --freeze-schedule 0:emb", "--freeze-schedule belongs to --optimizer freeze_skip_adam, "),
        ("--arch transformer --label-smoothing=0.1", "--label-smoothing belongs to --criterion label_smoothed_cross_entropy, "),
        ("--arch transformer --total-num-update 9", "--total-num-update belongs to --lr-scheduler polynomial_decay"),
        ("--arch transformer_lm --tokens-per-sample 9", "--tokens-per-sample belongs to --task language_modeling, masked_lm, "),
    ],
)  # fmt: skip
def test_unknown_flags_in_training(tmp_path, flags, owners):
    line, status = error_of(tmp_path / "none", *flags.split(), begin=BEGIN)
    assert f"; {owners}" in line and line.count("\n") == 1 and status == 2


def test_a_flag_that_no_choice_has(tmp_path):
    line, _ = error_of(tmp_path / "none", "--arch", "transformer", "--no-such", "1", begin=BEGIN)
    assert line == "fairseq-train: error: unrecognized arguments: --no-such 1\n"


@pytest.mark.parametrize(
    "command, flag, owners",
    [
        ("generate", "--sentencepiece-model x", "; --sentencepiece-model belongs to --bpe sentencepiece"),
        ("generate", "--momentum 0.9", ""),  # this command builds no optimizer
        ("validate", "--label-smoothing 0.1", ""),  # the criterion comes from the checkpoint
        ("validate", "--mask-prob 0.2", "; --mask-prob belongs to --task masked_lm"),
        ("interactive", "--wer-tokenizer none", ""),  # this command builds no scorer
    ],
)
def test_unknown_flags_in_other_commands(monkeypatch, command, flag, owners):
    line = [f"fairseq-{command}", "no-data", "--user-dir", USER_DIR, "--task", "translation", *flag.split()]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(InputError) as refusal:
        import_module(f"fairseq_cli.{command}").cli_main()
    found = str(refusal.value)
    assert found.startswith(f"unrecognized arguments: {flag}{owners}") and (owners or found.endswith(flag))


def test_other_programs_get_no_hint_about_choices():
    assert owners_of_unknown(None, ["--momentum"], ["--momentum"]) == ""


@pytest.mark.parametrize("choice", REGISTRIES)
def test_without_a_choice_no_flag_is_missing(choice):
    refuse_missing("fairseq-train", argparse.Namespace(**{choice: None}))


def test_a_missing_architecture(tmp_path):
    line, _ = error_of(tmp_path, begin=BEGIN)
    assert line == "fairseq-train: error: --arch: not given; for example, --arch reservoir_transformer_study\n"


def test_a_command_needs_only_the_flags_of_objects_that_it_builds():
    flags = {"bpe": "sentencepiece", "sentencepiece_model": "???", "task": "translation"}
    refuse_missing("fairseq-train", argparse.Namespace(**flags))
    # The task speech_to_text builds its own tokenizer and does not use this flag.
    refuse_missing("fairseq-generate", argparse.Namespace(**flags | {"task": "speech_to_text"}))
    with pytest.raises(InputError, match="^--sentencepiece-model: not given, but required by --bpe sentencepiece$"):
        refuse_missing("fairseq-generate", argparse.Namespace(**flags))


def test_all_missing_flags_are_named():
    flags = argparse.Namespace(tokenizer="moses", source_lang=None, target_lang=None)
    with pytest.raises(
        InputError, match="^--source-lang and --target-lang: not given, but required by --tokenizer moses$"
    ):
        refuse_missing("fairseq-generate", flags)


def test_total_num_update_is_not_needed_outside_training():
    flags = argparse.Namespace(lr_scheduler="polynomial_decay", total_num_update=None)
    refuse_missing("fairseq-generate", flags)
    flags = argparse.Namespace(lr_scheduler="polynomial_decay", total_num_update=None, max_update=7)
    refuse_missing("fairseq-train", flags)
    assert flags.total_num_update == 7
