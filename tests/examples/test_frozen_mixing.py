"""The recipes of frozen mixing: the README's table agrees with the commands."""

import re
import shlex

import pytest
import torch
import yaml
from fairseq import options

from fairseq_reservoir import cli
from tests.examples.test_multi30k import EXAMPLES, bash, commands_in
from tests.support.building import build

RUN = EXAMPLES / "frozen_mixing" / "run.sh"
README = (EXAMPLES / "frozen_mixing" / "README.md").read_text()
ROW = re.compile(r"^\| `([a-z-]+)` \| `(\w+)` \| `(\w+)` \| (?:`(.*)`)? ?\| (.*) \|$", flags=re.MULTILINE)
ARMS = {name: (encoder, decoder, further.split()) for name, encoder, decoder, further, _ in ROW.findall(README)}


def flags_of(arm, data, *further):
    ended = bash(RUN, *further, ARM=arm, DATA=str(data), RUNS=str(data / "runs"), DRY_RUN="1")
    assert ended.returncode == 0, ended.stderr
    return commands_in(ended.stdout)["fairseq-train"]


def test_the_readme_has_all_arms():
    assert ARMS.keys() == set(re.findall(r"^    ([a-z-]+)\)", RUN.read_text(), flags=re.MULTILINE))


def test_the_run_list_has_all_arms():
    arms = yaml.safe_load((EXAMPLES / "sweeps" / "frozen_mixing.yaml").read_text())["arms"]
    assert {name: flags.split() for name, flags in arms.items()} == {
        name: ["--reservoir-encoder", encoder, "--reservoir-decoder", decoder, *further]
        for name, (encoder, decoder, further) in ARMS.items()
    }


@pytest.mark.parametrize("arm", ARMS)
def test_dry_run_agrees_with_the_readme(arm, data):
    encoder, decoder, further = ARMS[arm]
    flags = flags_of(arm, data, "--max-update", "7")
    train = options.parse_args_and_arch(options.get_training_parser(), flags)
    assert (train.reservoir_encoder, train.reservoir_decoder) == (encoder, decoder)
    assert (train.freeze, train.max_update, train.encoder_embed_dim) == (further[1] if further else None, 7, 128)
    assert train.save_dir.endswith(f"/{arm}-700-4e-3-1")


@pytest.mark.parametrize("arm", ["", "fourier"])
def test_an_unknown_arm_is_named(arm, data):
    ended = bash(RUN, ARM=arm, DATA=str(data), DRY_RUN="1")
    assert (
        ended.returncode == 2
        and ended.stderr.startswith(f"frozen_mixing: ARM='{arm}': ")
        and ended.stderr.count("\n") == 1
    )


def frozen_by_atom(arm):
    encoder, decoder, further = ARMS[arm]
    with torch.device("meta"):
        model = build(encoder, decoder, "reservoir_transformer_study", freeze=further[1] if further else None)
    frozen = {}
    for entry in model.slot_table.entries:
        if not entry.trained:
            key = entry.name.split(".")[0], entry.atom
            frozen[key] = frozen.get(key, 0) + entry.size
    return frozen


def test_frozen_components_of_each_arm():
    """Width 128, 4 heads, 1024 positions, 4 + 2 layers; weights and biases."""
    projections, encoder_mix, decoder_mix = 4 * (128 * 128 + 128), 4 * 4 * 2047, 2 * 4 * 1024
    assert frozen_by_atom("random") == {("encoder", "self_att.mix"): encoder_mix}
    assert frozen_by_atom("mixit") == {
        ("encoder", "self_att.mix"): encoder_mix,
        ("decoder", "self_att.mix"): decoder_mix,
    }
    assert frozen_by_atom("fnet-random") == {
        ("encoder", "self_att.mix"): encoder_mix,
        ("encoder", "self_att.v"): projections,
        ("encoder", "self_att.o"): projections,
    }
    half = projections // 2
    assert frozen_by_atom("frozen-qk") == {
        **{("encoder", f"self_att.{part}"): projections for part in "qk"},
        **{("decoder", f"{kind}_att.{part}"): half for kind in ("self", "cross") for part in "qk"},
    }
    for arm in ARMS.keys() - {"random", "mixit", "fnet-random", "frozen-qk"}:
        assert frozen_by_atom(arm) == {}


@pytest.mark.parametrize("flags", re.findall(r"`(--arch [^`]*)`", README.replace("\n", " ")))
def test_the_other_models_take_the_same_plans(flags):
    _, arch, *rest = flags.split()
    table = cli.plan(arch, rest)
    assert {row.kind[0] for row in table.rows if ".layers." in row.place} == {rest[-1][-1]}


FNET = EXAMPLES / "frozen_mixing" / "fnet.sh"
OWN_ROWS = re.findall(r"^\| `([a-z-]+)` \| [^`|]+ \| `(\w+)`(?: with `(.*)`)? \|$", README, flags=re.MULTILINE)


def expanded(plan):
    return re.sub(r"(\d+)(\w)", lambda found: found[2] * int(found[1]), plan)


OWN_ARMS = {arm: (expanded(plan), flags.split()) for arm, plan, flags in OWN_ROWS}


def own_trainings(data, *further, **environment):
    """Options of the two fairseq-train of FNet's own experiment."""
    for name in ("train.tsv", "dev.tsv", "train.txt", "valid.txt", "test.txt"):
        (data / name).touch()
    ended = bash(
        FNET, *further, DATA=str(data), SST2=str(data), RUNS=str(data / "runs"), DRY_RUN="1", GPUS="1", **environment
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line.partition("2>&1")[0] for line in ended.stdout.splitlines() if line.startswith("fairseq-train ")]
    return [options.parse_args_and_arch(options.get_training_parser(), shlex.split(line)[1:]) for line in lines]


def test_the_readme_has_all_arms_of_fnets_own_experiment():
    assert OWN_ARMS.keys() == set(re.findall(r"^    ([a-z-]+)\) plan", FNET.read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("arm", OWN_ARMS)
def test_fnets_own_experiment(arm, data):
    """FNet's configurations: 512 pieces, 64 samples per update, 1e-4 after 10,000 updates; then 64 sentences and 1e-5."""
    pretraining, tuning = own_trainings(data, ARM=arm)
    plan, flags = OWN_ARMS[arm]
    for train in (pretraining, tuning):
        assert (train.reservoir_encoder, train.encoder_layers, train.encoder_embed_dim) == (plan, 12, 768)
        assert train.freeze == (flags[1] if flags else None)
    assert pretraining.task == "masked_lm" and pretraining.tokens_per_sample == tuning.max_positions == 512
    assert (pretraining.max_tokens * pretraining.update_freq[0] // 512, pretraining.max_update) == (64, 1_000_000)
    assert (pretraining.lr, pretraining.warmup_updates) == ([1e-4], 10_000)
    assert (tuning.task, tuning.batch_size, tuning.lr, tuning.warmup_updates) == (
        "sentence_prediction",
        64,
        [1e-5],
        315,
    )
    assert tuning.finetune_from_model == f"{pretraining.save_dir}/checkpoint_last.pt"


def test_hybrids_have_as_many_layers_at_study_size(data):
    for arm, plan in {
        "fnet-bottom": "LLMM",
        "fnet-middle": "MLLM",
        "fnet-mixed": "LMLM",
        "fnet-top": "MMLL",
    }.items():
        pretraining, tuning = own_trainings(data, ARM=arm, SIZE="study")
        assert pretraining.reservoir_encoder == tuning.reservoir_encoder == plan and pretraining.encoder_layers == 4


def test_without_pretraining(data):
    (tuning,) = own_trainings(data, ARM="fnet", UPDATES="0")
    assert tuning.finetune_from_model is None
