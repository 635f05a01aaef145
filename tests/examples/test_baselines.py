"""The baselines: the README's table agrees with the commands, and its numbers with the models."""

import functools
import re

import pytest
import torch
from fairseq import options
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.examples.test_multi30k import EXAMPLES, bash, commands_in
from tests.support.building import build, loss, pad, sentences

RUN = EXAMPLES / "baselines" / "run.sh"
README = (EXAMPLES / "baselines" / "README.md").read_text()
CELLS = r"`([a-z0-9-]+)` \| `(\w+)` \| `(\w+)` \| (?:`([^|]*)` )?\| ([\d,]+) \| ([\d.]+) \| .*"
ARMS = {
    name: (encoder, decoder, flags, int(trained.replace(",", "")), float(flops))
    for name, encoder, decoder, flags, trained, flops in re.findall(rf"^\| {CELLS} \|$", README, flags=re.MULTILINE)
}
WORDS = 5904
PRE_NORM = ["--share-all-embeddings", "--encoder-normalize-before", "--decoder-normalize-before"]


def dry_run(arm, data, *further, **environment):
    ended = bash(RUN, *further, ARM=arm, DATA=str(data), RUNS=str(data / "runs"), DRY_RUN="1", **environment)
    assert ended.returncode == 0, ended.stderr
    return commands_in(ended.stdout)["fairseq-train"]


def parsed(flags):
    return options.parse_args_and_arch(options.get_training_parser(), flags)


def built(arm, **changes):
    """Model of an arm's flags, with Multi30k's vocabulary."""
    encoder, decoder, flags, *_ = ARMS[arm]
    plans = ["--reservoir-encoder", encoder, "--reservoir-decoder", decoder]
    options = vars(parsed(["data", "--arch", "reservoir_transformer_study", *plans, *PRE_NORM, *flags.split()]))
    skipped = ("arch", "reservoir_encoder", "reservoir_decoder")
    options = {name: value for name, value in options.items() if name not in skipped} | changes
    return build(encoder, decoder, "reservoir_transformer_study", words=(WORDS, WORDS), **options)


@functools.cache
def flops(arm):
    """FLOPs of the matrix products of a step on 100 sentence pairs of 20 tokens.

    They are a linear function of the number of pairs, because some adapters multiply matrices once in a step: counted for 1 and 2 pairs.
    """
    model = built(arm)

    def of_pairs(pairs):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            loss(model, pad(sentences(*[20] * pairs)), pad(sentences(*[20] * pairs, seed=2))).backward()
        return counter.get_total_flops()

    one, two = of_pairs(1), of_pairs(2)
    return one + 99 * (two - one)


def test_the_readme_has_all_arms():
    assert ARMS.keys() == set(re.findall(r"^    ([a-z0-9-]+)\)", RUN.read_text(), flags=re.MULTILINE))
    (loop,) = re.findall(r"for arm in ([a-z0-9 -]+);", README)
    assert loop.split() == list(ARMS)


@pytest.mark.parametrize("arm", ARMS)
def test_dry_run_agrees_with_the_readme(arm, data):
    encoder, decoder, flags, *_ = ARMS[arm]
    words = dry_run(arm, data, "--max-update", "7", LR="1e-3")
    train = parsed(words)
    assert (train.reservoir_encoder, train.reservoir_decoder) == (encoder, decoder)
    arm_flags = words[words.index("sentencepiece") + 1 : words.index("--max-update", words.index("sentencepiece"))]
    assert " ".join(arm_flags) == (flags or "") and train.encoder_normalize_before and train.eval_bleu
    assert (train.max_update, int(train.total_num_update), train.lr) == (7, 700, [1e-3])
    assert (train.encoder_embed_dim, train.decoder_ffn_embed_dim, train.share_all_embeddings) == (128, 512, True)
    assert train.save_dir.endswith(f"/baseline-{arm}-700-1e-3-1")


@pytest.mark.parametrize("arm", ["", "dense"])
def test_an_unknown_arm_is_named(arm, data):
    ended = bash(RUN, ARM=arm, DATA=str(data), DRY_RUN="1")
    assert (
        ended.returncode == 2 and ended.stderr.startswith(f"baselines: ARM='{arm}': ") and ended.stderr.count("\n") == 1
    )


@pytest.mark.parametrize("arm", ARMS)
def test_the_readmes_numbers_of_trained_parameters(arm):
    with torch.device("meta"):
        assert built(arm).slot_table.trained_parameters == ARMS[arm][3]


@pytest.mark.parametrize("arm", sorted(ARMS.keys() - {"layerdrop"}))
def test_the_readmes_flops(arm):
    assert round(flops(arm) / flops("frozen"), 3) == ARMS[arm][4]


def test_layerdrop_runs_four_of_five_layers_on_average():
    model = built("layerdrop", dropout=0.0)
    assert model.encoder.layers.p == 0.2 and len(model.encoder.layers) == 5
    assert ARMS["layerdrop"][4] == ARMS["shallow"][4]
    torch.manual_seed(1)
    ran = [len(list(model.encoder.layers)) for _ in range(1000)]
    assert abs(sum(ran) / 1000 - 4) < 0.1  # four standard errors: 4 * sqrt(5 * 0.2 * 0.8 / 1000) = 0.11


def test_equal_parameters_and_flops_of_compared_arms():
    """Trained parameters by hand: three L, two L of a decoder, the last norms, 5,904 vectors of 128."""
    attention, norm = 4 * (128 * 128 + 128), 2 * 128
    ffn = 2 * 128 * 512 + 512 + 128
    trained = 3 * (attention + ffn + 2 * norm) + 2 * (2 * attention + ffn + 3 * norm) + 2 * norm + WORDS * 128
    assert ARMS["frozen"][3] == ARMS["without"][3] == trained == 1_880_192
    assert all(abs(ARMS[arm][3] / trained - 1) < 0.01 for arm in ("small", "lora-62"))
    assert abs(ARMS["shallow"][4] - 1) < 0.02 and ARMS["without"][4] < ARMS["frozen"][4] < ARMS["trained"][4]


def test_trained_parameters_of_adapters():
    """Rank r has r (in + out) parameters for LoRA and r + out for VeRA. Five encoder layers, and two with attention to the source."""
    attention, matrices = (5 + 2 * 2) * 4, (5 + 2) * 2
    at_rank_1 = attention * (128 + 128) + matrices * (128 + 512)
    norms = (5 * 2 + 2 * 3 + 2) * 2 * 128
    assert ARMS["body"][3] == WORDS * 128 + norms
    assert ARMS["lora"][3] == ARMS["body"][3] + 8 * at_rank_1 and ARMS["lora-62"][3] == ARMS["body"][3] + 62 * at_rank_1
    assert ARMS["vera"][3] == ARMS["body"][3] + attention * (64 + 128) + matrices * 64 + (5 + 2) * (128 + 512)


def test_the_benchmark_compares_the_two_arms():
    named = dict(re.findall(r'--arm "(\w+): (.*)"', README))
    for arm, flags in named.items():
        args = parsed(["data", *flags.split()])
        assert (args.arch, args.reservoir_encoder, args.reservoir_decoder) == (
            "reservoir_transformer_study",
            ARMS[arm][0],
            "LL",
        )
    assert list(named) == ["frozen", "shallow"]
