"""The recipes on Multi30k: their commands parse, and their table is read from the logs."""

import gzip
import json
import shlex
import subprocess
from pathlib import Path

import pytest
from fairseq import options

import fairseq_reservoir
from tests.support import programs
from tests.support.logs import Writer
from tests.support.scripts import run_script

ROOT = Path(fairseq_reservoir.__file__).parents[1]
EXAMPLES = ROOT / "examples"
RESERVOIR = EXAMPLES / "reservoir_transformers" / "multi30k.sh"
SIGNATURE = "nrefs:1|case:mixed"


@pytest.fixture
def data(tmp_path):
    """A folder like the original Multi30k, half of it compressed."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for part, pairs in {"train": 60, "val": 8, "test_2016_flickr": 4}.items():
        english = "".join(f"a dog and {number} cats play\n" for number in range(pairs))
        german = "".join(f"ein Hund und {number} Katzen spielen\n" for number in range(pairs))
        (folder / f"{part}.en").write_text(english)
        (folder / f"{part}.de.gz").write_bytes(gzip.compress(german.encode()))
    return folder


def bash(recipe, *arguments, **environment):
    variables = programs.environment(**environment)
    return subprocess.run(["bash", recipe, *arguments], env=variables, capture_output=True, text=True)


def python(script, *arguments):
    return run_script(EXAMPLES / script, *arguments)


def commands_in(dry_run):
    """Arguments of each command, by its name."""
    commands = {}
    for line in dry_run.splitlines():
        words = shlex.split(line)
        end = next((i for i, word in enumerate(words) if word in (">", "2>&1")), len(words))
        commands[words[0]] = words[1:end]
    return commands


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.sh")), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_bash_reads_every_script(script):
    subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.parametrize("plan", ["LLL", "LTLTL", "LFLFL"])
def test_dry_run_prints_commands_that_fairseq_understands(plan, data, tmp_path):
    runs = tmp_path / "runs"
    ended = bash(RESERVOIR, "--max-update", "7", DATA=str(data), PLAN=plan, RUNS=str(runs), DRY_RUN="1")
    assert ended.returncode == 0, ended.stderr
    assert not runs.exists()
    commands = commands_in(ended.stdout)
    preprocess = options.get_preprocessing_parser().parse_args(commands["fairseq-preprocess"])
    assert preprocess.joined_dictionary
    train = options.parse_args_and_arch(options.get_training_parser(), commands["fairseq-train"])
    assert (train.reservoir_encoder, train.reservoir_decoder) == (plan, "LL")
    assert (train.encoder_embed_dim, train.encoder_ffn_embed_dim, train.share_all_embeddings) == (128, 512, True)
    assert (train.max_tokens, train.max_update, int(train.total_num_update), train.validate_interval_updates) == (
        2048,
        7,
        700,
        70,
    )
    assert train.encoder_normalize_before and train.decoder_normalize_before and train.eval_bleu
    assert train.no_epoch_checkpoints and train.data == f"{runs}/bin"
    generate = options.parse_args_and_arch(options.get_generation_parser(), commands["fairseq-generate"])
    assert generate.beam == 5 and generate.path == f"{train.save_dir}/checkpoint_best.pt"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"DATA": ""}, "DATA is not set"),
        ({"DATA": "nowhere"}, "neither nowhere/train.en nor nowhere/train.en.gz exists"),
    ],
)
def test_missing_data_is_named(change, message, tmp_path):
    ended = bash(RESERVOIR, RUNS=str(tmp_path / "runs"), DRY_RUN="1", **change)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1) and message in ended.stderr


@pytest.mark.slow
def test_a_tiny_run_resumes_and_scores(data, tmp_path):
    sizes = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 8 --encoder-attention-heads 2 --decoder-attention-heads 2".split()
    settings = {"DATA": str(data), "PLAN": "LT", "DECODER": "L", "UPDATES": "16", "NAME": "LT-L"}
    runs = str(tmp_path / "runs")
    for epochs in ("1", "2"):
        ended = bash(RESERVOIR, *sizes, "--batch-size", "8", "--max-epoch", epochs, RUNS=runs, **settings)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Loaded checkpoint" in ended.stdout
    assert "| LT-L-16-4e-3-1 |" in ended.stdout and "BLEU: nrefs:1|" in ended.stdout
    assert "| 16 | " in ended.stdout  # 60 sentences are 8 batches of 8, twice


def test_hypotheses_come_in_the_order_of_the_test_set(tmp_path):
    log = tmp_path / "log"
    log.write_text("S-1\tb\nD-1\t-0.5\tzweitens\nH-0\t-1\ta\nD-0\t-1.0\terstens\nD-10\t-1\tx\n")
    ended = python("hypotheses.py", log)
    assert ended.returncode == 1 and "3 translations" in ended.stderr
    log.write_text("D-1\t-0.5\tzweitens\nD-0\t-1.0\terstens\nD-2\t-1\t\n")
    assert python("hypotheses.py", log).stdout == "erstens\nzweitens\n\n"


def test_of_several_hypotheses_the_best_is_taken(tmp_path):
    """fairseq-generate --nbest 2 prints the better hypothesis first, and the report reads only that one."""
    log = tmp_path / "log"
    log.write_text("D-1\t-0.2\tgut\nD-1\t-0.9\tschlechter\nD-0\t-0.1\tja\nD-0\t-0.8\tnein\n")
    assert python("hypotheses.py", log).stdout == "ja\ngut\n"


def test_summary_of_a_run_interrupted_in_its_second_epoch(tmp_path):
    log = Writer(tmp_path, per_epoch=50, mflop=None).start()
    log.inner(25, 20, 100, 30).valid(25, loss=9.5).inner(50, 20, 100, 58).valid(50, loss=9.75).epoch(
        50, 40, 100, 60
    ).inner(75, 14, 100, 90)
    log.start(restored=50, epoch=2).inner(75, 21, 100, 33).inner(100, 21, 100, 64).valid(100, loss=10.25).epoch(
        100, 42, 100, 66
    )
    log.done().write()
    (tmp_path / "bleu.json").write_text(json.dumps({"score": 12.345, "signature": SIGNATURE}))

    table = python("summarise.py", tmp_path).stdout.splitlines()
    # (40 + 14 + 42) s of steps / 100 updates = 0.960; (90 + 66) s / 60 = 2.6 minutes; the smallest loss is not at the end of an epoch.
    assert table[2] == f"| {tmp_path.name} | 1,879,680 | 1,417,344 | 12.35 | 0.960 | 2.6 | 100 | 9.500 |"
    assert table[-1] == f"BLEU: {SIGNATURE}"


@pytest.mark.parametrize(
    "arm, expected",
    [
        ("dense", {"arch": "transformer", "lr": [2e-3]}),
        (
            "paper",
            {"mask_init_weights": "paper_code", "mask_layernorm": "plain", "mask_kind": "binary", "lr": [1e-3]},
        ),
        ("text", {"mask_init_weights": "kaiming_uniform", "mask_layernorm": "plain", "mask_kind": "binary"}),
        ("binary", {"mask_init_weights": "signed_fairseq", "mask_layernorm": "affine", "mask_kind": "binary"}),
        ("signed", {"mask_kind": "signed", "mask_keep_ratio": 0.5, "mask_coats": None}),
        ("coats", {"mask_kind": "signed", "mask_keep_ratio": 0.8, "mask_coats": "0.5,0.25,0.1"}),
    ],
)
def test_arms_of_the_one_layer_recipe(arm, expected, data, tmp_path):
    recipe = EXAMPLES / "one_layer_supermask" / "multi30k.sh"
    ended = bash(recipe, DATA=str(data), ARM=arm, UPDATES="70", RUNS=str(tmp_path), DRY_RUN="1")
    assert ended.returncode == 0, ended.stderr
    train = options.parse_args_and_arch(options.get_training_parser(), commands_in(ended.stdout)["fairseq-train"])
    assert {name: getattr(train, name) for name in expected} == expected
    assert (train.encoder_layers, train.encoder_embed_dim, train.max_update, int(train.total_num_update)) == (
        3,
        128,
        70,
        70,
    )
    assert train.save_dir == f"{tmp_path}/{arm}-study-70-0.1-1"


@pytest.mark.parametrize(
    "settings, expected, name",
    [
        (
            {"ARM": "binary", "KEEP": "0.1"},
            {"mask_keep_ratio": 0.1, "mask_coats": None},
            "binary-study-1400-0.1-keep0.1",
        ),
        ({"KEEP": "0.4"}, {"mask_keep_ratio": 0.4, "mask_coats": "0.25,0.125,0.05"}, "coats-study-1400-0.1-keep0.4"),
        (
            {"ARM": "binary", "INIT": "paper_code"},
            {"mask_init_weights": "paper_code"},
            "binary-study-1400-0.1-paper_code",
        ),
        (
            {"ARM": "paper", "INIT": "xavier_uniform"},
            {"mask_init_weights": "xavier_uniform"},
            "paper-study-1400-0.1-xavier_uniform",
        ),
        (
            {"ARM": "binary", "VECTORS": "v"},
            {"encoder_embed_path": "v.en", "decoder_embed_path": "v.en"},
            "binary-study-1400-0.1-vectors",
        ),
        (
            {"SIZE": "wide", "ARM": "dense"},
            {"encoder_embed_dim": 256, "encoder_layers": 3, "lr": [1e-3]},
            "dense-wide-1400-0.1",
        ),
        (
            {"SIZE": "deep", "LR": "4e-3"},
            {"encoder_layers": 6, "decoder_layers": 4, "lr": [4e-3]},
            "coats-deep-1400-0.1-4e-3",
        ),
        (
            {"NORM": "before", "NAME": "mine"},
            {"encoder_normalize_before": True, "decoder_normalize_before": True},
            "mine",
        ),
    ],
)
def test_settings_of_the_one_layer_recipe(settings, expected, name, data, tmp_path):
    ended = bash(
        EXAMPLES / "one_layer_supermask" / "multi30k.sh", DATA=str(data), RUNS=str(tmp_path), DRY_RUN="1", **settings
    )
    assert ended.returncode == 0, ended.stderr
    train = options.parse_args_and_arch(options.get_training_parser(), commands_in(ended.stdout)["fairseq-train"])
    assert {option: getattr(train, option) for option in expected} == expected
    assert train.save_dir == f"{tmp_path}/{name}-1"


def test_a_dense_model_takes_no_settings_of_masks(data):
    ended = bash(EXAMPLES / "one_layer_supermask" / "multi30k.sh", DATA=str(data), DRY_RUN="1", ARM="dense", KEEP="0.1")
    assert (ended.returncode, ended.stderr) == (2, "multi30k: ARM=dense: KEEP, INIT and VECTORS are for masks\n")


def test_vectors_that_are_not_there_are_named(data, tmp_path):
    recipe = EXAMPLES / "one_layer_supermask" / "multi30k.sh"
    ended = bash(recipe, DATA=str(data), RUNS=str(tmp_path / "runs"), ARM="binary", VECTORS="nowhere/v")
    assert (ended.returncode, ended.stderr) == (2, "multi30k: VECTORS=nowhere/v: nowhere/v.en does not exist\n")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("change", [{"ARM": "half"}, {"SIZE": "huge"}, {"NORM": "between"}])
def test_unknown_arms_and_sizes_are_named(change, data):
    ended = bash(EXAMPLES / "one_layer_supermask" / "multi30k.sh", DATA=str(data), DRY_RUN="1", **change)
    ((name, value),) = change.items()
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1) and f"{name}='{value}'" in ended.stderr
