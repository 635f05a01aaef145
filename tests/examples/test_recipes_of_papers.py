"""The recipes at the papers' sizes: their commands parse, several GPUs keep the tokens per update, MINI=1 runs to the end."""

import os
import re
import shlex
import subprocess

import pytest
import torch
from fairseq import options

from examples import mini_corpus
from examples.references import references
from fairseq_reservoir import cli
from fairseq_reservoir.api import load
from tests.examples.test_multi30k import EXAMPLES, bash, commands_in

RESERVOIRS = EXAMPLES / "reservoir_transformers"
MASKS = EXAMPLES / "one_layer_supermask"


def dry_run(recipe, tmp_path, *further, **environment):
    settings = {"BIN": "data-bin/prepared", "GLUE": "data-bin/glue/QQP", "RUNS": str(tmp_path / "runs"), **environment}
    ended = bash(recipe, *further, DRY_RUN="1", **settings)
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "runs").exists()
    return ended.stdout


def trained(printed):
    """Options of the last fairseq-train."""
    return options.parse_args_and_arch(options.get_training_parser(), commands_in(printed)["fairseq-train"])


@pytest.mark.parametrize("kind, plan, layerdrop", [
    ("L", None, 0), ("T", "LLTLTLLL", 0), ("F", "LLFLFLLL", 0), ("G", "LLGLGLLL", 0), ("C", "LLCLCLLL", 0), ("drop", None, 0.25),
])  # fmt: skip
def test_kinds_of_reservoirs(kind, plan, layerdrop, tmp_path):
    printed = dry_run(RESERVOIRS / "iwslt14.sh", tmp_path, KIND=kind, SEED="3")
    train = trained(printed)
    assert (train.reservoir_encoder or "8L").replace("8L", "LLLLLLLL") == (plan or "LLLLLLLL")
    assert (train.encoder_layers, train.decoder_layers, train.encoder_layerdrop) == (8, 2, layerdrop)
    assert (train.encoder_embed_dim, train.encoder_ffn_embed_dim, train.max_tokens, train.seed) == (512, 1024, 4096, 3)
    assert train.save_dir == str(tmp_path / "runs" / f"{kind}-8-{0 if kind == 'L' else 2}-3")
    generate = options.parse_args_and_arch(options.get_generation_parser(), commands_in(printed)["fairseq-generate"])
    assert (generate.beam, generate.tokenizer, generate.post_process) == (5, "moses", "subword_nmt")


@pytest.mark.parametrize("kind", ["G", "C"])
@pytest.mark.parametrize("recipe", ["iwslt14.sh", "wmt14.sh"])
def test_reservoirs_in_both_stacks(recipe, kind, tmp_path):
    settings = {"KIND": kind, "DEPTH": "6", "FROZEN": "2", "DECODER_DEPTH": "3", "DECODER_FROZEN": "1"}
    train = trained(dry_run(RESERVOIRS / recipe, tmp_path, **settings))
    assert (train.reservoir_encoder, train.reservoir_decoder) == (f"L{kind}L{kind}LL", f"L{kind}L")
    assert train.save_dir == str(tmp_path / "runs" / f"{kind}-6-2-decoder-3-frozen-1-1")


@pytest.mark.parametrize("kind", ["L", "drop"])
def test_kinds_without_reservoirs_in_the_decoder(kind, tmp_path):
    ended = bash(RESERVOIRS / "iwslt14.sh", BIN="x", RUNS=str(tmp_path), DRY_RUN="1", KIND=kind, DECODER_FROZEN="1")
    assert ended.returncode == 2 and ended.stderr.endswith("DECODER_FROZEN=1: needs KIND=T, F, G or C\n")


@pytest.mark.parametrize("gpus, batches", [("8", 1), ("3", 3), ("1", 8), ("0", 8)])
def test_as_many_tokens_on_fewer_gpus(gpus, batches, tmp_path):
    train = trained(dry_run(RESERVOIRS / "wmt14.sh", tmp_path, DEPTH="16", GPUS=gpus))
    assert train.cpu == (gpus == "0") and (train.encoder_layers, train.decoder_layers) == (16, 1)
    assert train.update_freq == [batches]
    assert gpus == "0" or train.distributed_world_size == int(gpus)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that simulates a machine with a number of GPUs. With none, nvidia-smi fails as it does without a driver."""

    def has(gpus):
        tool = tmp_path / "bin" / "nvidia-smi"
        tool.parent.mkdir()
        lines = "".join(f"echo 'GPU {i}: A GPU (UUID: GPU-{i})'\n" for i in range(gpus))
        tool.write_text(f'#!/bin/sh\n[ "$*" = -L ] || exit 1\n{lines or "echo No devices were found; exit 9"}\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return has


@pytest.mark.parametrize(
    "gpus, visible, batches",
    [(8, None, 1), (2, None, 4), (1, None, 8), (0, None, 8), (8, "0,3", 4), (8, "", 8), (8, "-1", 8)],
)
def test_gpus_left_out_are_all_there_are(gpus, visible, batches, machine, tmp_path):
    machine(gpus)
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert trained(dry_run(RESERVOIRS / "wmt14.sh", tmp_path, **environment)).update_freq == [batches]


@pytest.mark.parametrize(
    "recipe, gpus, said",
    [
        ("wmt14", "2", ""),
        ("wmt14", "3", "GPUs: 3; an update has 9 batches instead of 8"),
        ("iwslt14", "4", "GPUs: 4; an update has 4 batches instead of 1"),
    ],
)
def test_more_tokens_on_other_gpus_are_reported(recipe, gpus, said, tmp_path):
    ended = bash(RESERVOIRS / f"{recipe}.sh", GPUS=gpus, DRY_RUN="1", BIN="data-bin", RUNS=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, said and f"{recipe}: note: {said}\n")


def test_gpus_is_a_number(tmp_path):
    ended = bash(RESERVOIRS / "wmt14.sh", GPUS="all", DRY_RUN="1", BIN="data-bin")
    assert (ended.returncode, ended.stderr) == (2, "wmt14: GPUS='all': must be a number of GPUs, or 0 for the CPU\n")


def test_language_model_and_roberta(tmp_path):
    train = trained(dry_run(RESERVOIRS / "enwik8.sh", tmp_path))
    assert (train.arch, train.decoder_layers, train.reservoir_decoder) == (
        "reservoir_transformer_lm_enwik8",
        12,
        "LLFLFLFLFLLL",
    )
    pre_norm = trained(dry_run(RESERVOIRS / "enwik8.sh", tmp_path, RESIDUAL="norm"))
    assert train.rezero and not pre_norm.rezero and pre_norm.save_dir == train.save_dir.replace("-rezero", "")
    printed = dry_run(RESERVOIRS / "roberta.sh", tmp_path, CLASSES="3", FINETUNE="100")
    pretraining = [line for line in printed.splitlines() if line.startswith("fairseq-train data-bin/prepared")]
    arguments = shlex.split(pretraining[0].partition("2>&1")[0])[1:]
    first = options.parse_args_and_arch(options.get_training_parser(), arguments)
    train = trained(printed)
    assert (first.task, train.task, train.num_classes, train.warmup_updates) == (
        "masked_lm",
        "sentence_prediction",
        3,
        6,
    )
    assert train.finetune_from_model == f"{first.save_dir}/checkpoint_best.pt"
    assert not first.save_dir.startswith(train.save_dir)  # the second task reuses the pretraining
    longer = trained(dry_run(RESERVOIRS / "roberta.sh", tmp_path, CLASSES="3", FINETUNE="100", UPDATES="200000"))
    assert longer.save_dir != train.save_dir
    assert first.arch == train.arch == "reservoir_roberta_base" and first.reservoir_encoder == train.reservoir_encoder


SIZES = {"iwslt14": ["base", "wide", "deep"], "wmt14": ["base", "wider", "deeper"]}
# Only the flags of the dense model depend on both the arm and the size.
POINTS = [(task, size, arm) for task, sizes in SIZES.items() for size in sizes for arm in ("paper", "dense")]
POINTS += [("iwslt14", "wide", "text"), ("wmt14", "deeper", "best")]


@pytest.mark.parametrize("task, size, arm", POINTS)
def test_masks_at_the_papers_sizes(task, size, arm, tmp_path):
    train = trained(dry_run(MASKS / "papers.sh", tmp_path, TASK=task, SIZE=size, ARM=arm))
    wide, deep = size.startswith("wide"), size.startswith("deep")
    assert (train.encoder_layers, train.decoder_layers) == ((12, 12) if deep else (6, 6))
    ffn = {"iwslt14": 1024, "wmt14": 2048}[task] * (2 if wide else 1)
    assert (train.encoder_embed_dim, train.encoder_ffn_embed_dim) == (1024 if wide else 512, ffn)
    assert (train.decoder_embed_dim, train.decoder_ffn_embed_dim) == (1024 if wide else 512, ffn)
    assert train.share_decoder_input_output_embed
    given = {key: getattr(train, f"mask_{key}", None) for key in ("keep_ratio", "init_weights", "coats")}
    expected = {
        "paper": (0.5, "paper_code", None),
        "text": (0.5, "kaiming_uniform", None),
        "best": (0.8, "signed_fairseq", "0.5,0.25,0.1"),
        "dense": (None,) * 3,
    }
    assert tuple(given.values()) == expected[arm]
    assert train.attention_dropout == (0.1 if size == "wider" else 0)


def test_points_of_the_figures(tmp_path):
    train = trained(
        dry_run(MASKS / "papers.sh", tmp_path, KEEP="0.1", INIT="xavier_uniform", LAYERS="none", VECTORS="/v/trained")
    )
    assert (train.mask_keep_ratio, train.mask_init_weights, train.mask_share) == (0.1, "xavier_uniform", "none")
    assert (train.encoder_embed_path, train.decoder_embed_path) == ("/v/trained.de", "/v/trained.en")
    assert train.save_dir.endswith("/paper-base-keep0.1-xavier_uniform-vectors-none-1")


@pytest.mark.parametrize("settings, epochs", [({}, 10), ({"AVERAGE": "5"}, 5), ({"AVERAGE": "0"}, 0)])
def test_wmt14_translates_with_the_mean_of_the_last_epochs(settings, epochs, tmp_path):
    printed = dry_run(MASKS / "papers.sh", tmp_path, TASK="wmt14", **settings)
    train, words = trained(printed), commands_in(printed)
    assert (train.keep_last_epochs, train.no_epoch_checkpoints) == ((epochs, False) if epochs else (-1, True))
    generate = options.parse_args_and_arch(options.get_generation_parser(), words["fairseq-generate"])
    assert generate.path == f"{train.save_dir}/{'averaged/checkpoint.pt' if epochs else 'checkpoint_best.pt'}"
    expected = [f"{train.save_dir}/checkpoint[0-9]*.pt", f"{train.save_dir}/averaged.part/checkpoint.pt"]
    assert words.get("fairseq-reservoir", []) == (["average", *expected] if epochs else [])
    assert trained(dry_run(MASKS / "papers.sh", tmp_path)).no_epoch_checkpoints  # iwslt14


@pytest.mark.parametrize("settings, kept", [({}, 5), ({"AVERAGE": "3"}, 3), ({"AVERAGE": "0"}, -1)])
def test_reservoirs_of_wmt14_translate_with_the_mean_of_the_best_checkpoints(settings, kept, tmp_path):
    printed = dry_run(RESERVOIRS / "wmt14.sh", tmp_path, **settings)
    train, words = trained(printed), commands_in(printed)
    assert (train.keep_best_checkpoints, train.no_epoch_checkpoints) == (kept, True)
    generate = options.parse_args_and_arch(options.get_generation_parser(), words["fairseq-generate"])
    assert generate.path == f"{train.save_dir}/{'checkpoint_best.pt' if kept == -1 else 'averaged/checkpoint.pt'}"
    expected = [f"{train.save_dir}/checkpoint.best_*.pt", f"{train.save_dir}/averaged.part/checkpoint.pt"]
    assert words.get("fairseq-reservoir", []) == ([] if kept == -1 else ["average", *expected])


AVERAGE = """
root={root} dry=
. {root}/examples/steps.sh
. {root}/examples/translation.sh
{call}
"""


@pytest.mark.parametrize("call, names, used", [
    ("average_last {folder} 3 {folder}", range(1, 13), "10 11 12"),
    ("average_last {folder} 3 {folder}", [1], "_last"),
    ("average_last {folder} 3 {folder}", [], "_last"),
    ("average_best {folder} {folder}", [1, ".best_loss_4.1", ".best_loss_4.2"], ".best_loss_4.1 .best_loss_4.2"),
    ("average_best {folder} {folder}", [".best_loss_4.1"], ".best_loss_4.1"),
    ("average_best {folder} {folder}", [], "_best"),
])  # fmt: skip
def test_these_checkpoints_are_averaged(call, names, used, tmp_path):
    """checkpoint10.pt follows checkpoint9.pt. Checkpoints of other kinds are left out. A single checkpoint is copied."""
    for name in (*names, "_best", "_last", "_3_500"):
        (tmp_path / f"checkpoint{name}.pt").write_text(str(name))
    program = tmp_path / "bin" / "fairseq-reservoir"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\nshift; for last; do :; done\n"cat" "$@" 2>/dev/null >"$last.new"; mv "$last.new" "$last"\n'
    )
    program.chmod(0o755)
    script = AVERAGE.format(root=EXAMPLES.parent, call=call.format(folder=tmp_path))
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", script], env=environment, check=True)
    assert (tmp_path / "checkpoint.pt").read_text() == used.replace(" ", "")


FINE_TUNING = (
    "lr",
    "weight_decay",
    "clip_norm",
    "dropout",
    "attention_dropout",
    "batch_size",
    "adam_eps",
    "lr_scheduler",
)


@pytest.mark.parametrize(
    "settings, sentences, layers, width",
    [
        ({}, 363_846, 12, 768),
        ({"CLASSES": "3", "SIZE": "large", "LAYERS": "none", "KEEP": "0.9", "NORM": "affine"}, 392_702, 24, 1024),
        ({"SIZE": "wide", "INIT": "xavier_uniform", "LR": "3e-5"}, 363_846, 12, 1024),
        ({"ARM": "dense"}, 363_846, 12, 768),
        ({"ARM": "dense", "SIZE": "wide"}, 363_846, 12, 1024),
    ],
)
def test_glue_is_fine_tuned_as_by_liu_et_al(settings, sentences, layers, width, tmp_path):
    """Liu et al. (2019): batches of 32, 1e-5 to 3e-5, weight decay 0.1, warm-up 6 %, 10 epochs; no clipping."""
    train = trained(dry_run(MASKS / "glue.sh", tmp_path, FROM="roberta.pt", **settings))
    rate = float(settings.get("LR", 1e-5))
    assert [getattr(train, name) for name in FINE_TUNING] == [[rate], 0.1, 0.0, 0.1, 0.1, 32, 1e-6, "polynomial_decay"]
    updates = 10 * -(-sentences // 32)
    assert (train.max_update, int(train.total_num_update), train.warmup_updates) == (
        updates,
        updates,
        updates * 6 // 100,
    )
    assert (train.encoder_layers, train.encoder_embed_dim, train.encoder_ffn_embed_dim) == (layers, width, 4 * width)
    if settings.get("ARM") == "dense":
        assert train.arch.startswith("reservoir_roberta_") and train.finetune_from_model == "roberta.pt"
        assert not train.freeze and set(train.reservoir_encoder or "L") == {"L"}
    else:
        given = (train.mask_share, train.mask_keep_ratio, train.mask_init_weights, train.mask_layernorm)
        names = {"LAYERS": "layer", "KEEP": "0.7", "INIT": "paper_code", "NORM": "plain"}
        assert given == tuple(type(a)(settings.get(name, b)) for a, (name, b) in zip(given, names.items()))
        assert train.mask_embeddings_from == "roberta.pt"


def test_each_point_of_glue_has_its_own_folder(tmp_path):
    points = [
        {}, {"LAYERS": "none"}, {"KEEP": "0.1"}, {"INIT": "signed_fairseq"}, {"NORM": "affine"}, {"LR": "2e-5"},
        {"EPOCHS": "3"}, {"SIZE": "wide"}, {"SIZE": "large"}, {"ARM": "dense"}, {"FROM": "roberta.pt"},
    ]  # fmt: skip
    folders = {trained(dry_run(MASKS / "glue.sh", tmp_path, **point)).save_dir for point in points}
    assert len(folders) == len(points)
    ended = bash(MASKS / "glue.sh", GLUE="glue", DRY_RUN="1", ARM="dense", KEEP="0.5")
    assert (ended.returncode, ended.stderr) == (2, "glue: ARM=dense: KEEP, LAYERS, INIT and NORM are for masks\n")


@pytest.mark.parametrize(
    "recipe, settings",
    [
        ("reservoir_transformers/iwslt14.sh", {"KIND": "L"}),
        ("reservoir_transformers/wmt14.sh", {"KIND": "L"}),
        ("reservoir_transformers/enwik8.sh", {"KIND": "L"}),
        ("reservoir_transformers/roberta.sh", {"KIND": "L"}),
        ("reservoir_transformers/multi30k.sh", {}),
        ("frozen_mixing/run.sh", {"ARM": "attention"}),
        ("frozen_mixing/fnet.sh", {"ARM": "bert"}),
        ("baselines/run.sh", {"ARM": "full"}),
        ("backskip/run.sh", {"KIND": "none"}),
        ("frozen_components/run.sh", {"ARM": "0"}),
        ("frozen_components/language_model.sh", {"ARM": "0"}),
        ("language_models/run.sh", {"MODEL": "masked", "ARM": "dense"}),
        ("one_layer_supermask/papers.sh", {"ARM": "dense"}),
        ("one_layer_supermask/multi30k.sh", {"ARM": "dense"}),
        ("one_layer_supermask/sst2.sh", {"ARCH": "reservoir_roberta_study"}),
        ("one_layer_supermask/glue.sh", {"ARM": "dense"}),
        ("fpt/run.sh", {"TASK": "xor", "ARM": "trained"}),
    ],
)
def test_a_plan_given_as_an_argument_has_its_own_folder(recipe, settings, tmp_path):
    """In the folder of the all-trained run, it would be refused, or replace that run."""

    def folder(*arguments):
        printed = bash(EXAMPLES / recipe, *arguments, DRY_RUN="1", MINI="1", RUNS=str(tmp_path), **settings).stdout
        words = commands_in(printed)["fairseq-train"]
        return words[words.index("--save-dir") + 1]

    own, plain = folder("--reservoir-encoder", "LTLTL", "--max-update", "20"), folder()
    assert "-reservoir-encoder-LTLTL" in own
    # With another --max-update it is the same training, continued.
    assert own.replace("-reservoir-encoder-LTLTL", "") == plain


def test_the_commands_of_the_one_layer_readme_run_where_the_others_do(tmp_path):
    """Run from the repository's root, as written. Each command of the table is one point."""
    readme = (MASKS / "README.md").read_text()
    (settings,) = re.findall(r"^    (export BIN=.*)$", readme, flags=re.MULTILINE)
    commands = re.findall(r"`([^`|\n]* bash [^`|\n]*)`", readme)
    assert len(commands) == 14
    for command in commands:
        ended = subprocess.run(
            ["bash", "-c", f"cd {EXAMPLES.parent} && {settings} && RUNS={tmp_path}/runs DRY_RUN=1 {command}"],
            capture_output=True, text=True, env={**os.environ, "GPUS": "1"},
        )  # fmt: skip
        assert ended.returncode == 0 and "fairseq-train" in ended.stdout, command + ended.stderr
    (dumped,) = re.findall(r"dump-embeddings runs/iwslt14-masks/(\S+)/checkpoint_best.pt", readme)
    assert trained(dry_run(MASKS / "papers.sh", tmp_path, ARM="dense")).save_dir == f"{tmp_path}/runs/{dumped}"


def test_echo_state_runs_every_depth_and_kind_and_reports(tmp_path):
    printed = dry_run(EXAMPLES / "echo_state" / "run.sh", tmp_path, DEPTHS="6 12", KINDS="L T", SEEDS="1 2")
    folders = [
        line.split("--save-dir ")[1].split()[0] for line in printed.splitlines() if line.startswith("fairseq-train")
    ]
    names = [f"{kind}-{seed}" for seed in "12" for kind in ("L-6-0", "T-6-2", "L-12-0", "T-12-2")]
    assert [folder.rpartition("/")[2] for folder in folders] == names
    report = commands_in(printed)["fairseq-reservoir"]
    assert report[:2] == ["report", str(tmp_path / "runs")]
    assert report[-4:] == ["--against", "encoder_layers", "--baseline", "L-6-0"]


def test_echo_state_compares_with_the_first_trained_model(tmp_path):
    """The name of its folder has the further flags. Without trained models, the report has no baseline."""
    recipe = EXAMPLES / "echo_state" / "run.sh"
    flagged = dry_run(recipe, tmp_path, "--fp16", DEPTHS="4", KINDS="F L", SEEDS="1")
    assert commands_in(flagged)["fairseq-reservoir"][-2:] == ["--baseline", "L-4-0-fp16"]
    assert "/L-4-0-fp16-1 " in flagged
    without = dry_run(recipe, tmp_path, DEPTHS="4", KINDS="F", SEEDS="1")
    assert commands_in(without)["fairseq-reservoir"][-1] == "encoder_layers"


def test_numbers_in_words():
    pairs = {
        0: ("zero", "null"),
        1: ("one", "eins"),
        21: ("twenty-one", "einundzwanzig"),
        101: ("one hundred and one", "einhunderteins"),
        30_000: ("thirty thousand", "dreißigtausend"),
        21_304: ("twenty-one thousand three hundred and four", "einundzwanzigtausenddreihundertvier"),
        801_017: ("eight hundred and one thousand seventeen", "achthunderteintausendsiebzehn"),
    }
    assert {number: (mini_corpus.english(number), mini_corpus.german(number)) for number in pairs} == pairs


def test_references_are_raw_text_in_order():
    log = "T-1\tdon &apos;t stop , he said .\nD-1\t0\tx\nT-0\ta well @-@ known man\n"
    assert references(log, "en") == ["a well-known man", "don't stop, he said."]
    with pytest.raises(SystemExit, match="1 references"):
        references("T-1\tb\n", "en")


MINI = {
    "multi30k.sh": {"NAME": "plain"},
    "reservoir_transformers/multi30k.sh": {},
    "reservoir_transformers/iwslt14.sh": {},
    "reservoir_transformers/wmt14.sh": {"KIND": "T"},
    "reservoir_transformers/enwik8.sh": {},
    "reservoir_transformers/roberta.sh": {},
    "echo_state/run.sh": {"DEPTHS": "6", "KINDS": "F", "SEEDS": "1"},
    "one_layer_supermask/papers.sh": {"TASK": "wmt14"},
    "one_layer_supermask/multi30k.sh": {},
    "one_layer_supermask/sst2.sh": {},
    "one_layer_supermask/glue.sh": {},
    "frozen_components/run.sh": {"ARM": "2"},
    "frozen_components/language_model.sh": {"ARM": "3"},
    "frozen_mixing/run.sh": {"ARM": "fnet"},
    "frozen_mixing/fnet.sh": {"ARM": "fnet-top"},
    "baselines/run.sh": {"ARM": "lora"},
    "backskip/run.sh": {"KIND": "synthetic"},
    "fpt/run.sh": {"TASK": "xor", "ARM": "frozen-pretrained", "RATES": "1e-3"},
    "language_models/run.sh": {"MODEL": "characters", "ARM": "T"},
    "language_models/sst2.sh": {"ARM": "T"},
}


def test_every_recipe_has_a_mini_run():
    shared = {
        "distil.sh",
        "steps.sh",
        "common.sh",
        "translation.sh",
        "text.sh",
        "classification.sh",
        "rows.sh",
        "arms.sh",
        "kinds.sh",
        "decoder.sh",
        "quickstart.sh",
    }
    recipes = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.sh") if path.name not in shared}
    assert {recipe for recipe in recipes if not recipe.startswith("distributed/")} == MINI.keys()


def mini_run(recipe, tmp_path, **environment):
    model = ["--arch", "reservoir_transformer_tiny", "--lr", "1e-3"] if recipe == "multi30k.sh" else []
    return bash(
        EXAMPLES / recipe, *model, MINI="1", RUNS=str(tmp_path / "runs"), GPUS="0", **MINI[recipe], **environment
    )


@pytest.mark.parametrize("recipe", MINI)
def test_a_dry_mini_run_prints_its_commands_and_writes_nothing(recipe, tmp_path):
    ended = mini_run(recipe, tmp_path, DRY_RUN="1")
    assert (ended.returncode, ended.stderr) == (0, "")
    commands = commands_in(ended.stdout)
    assert commands["fairseq-train"][-6:] == ["--max-update", "10", "--max-tokens", "600", "--update-freq", "1"]
    if "fairseq-generate" in commands:  # their text has pieces in place of words
        assert commands["fairseq-generate"][commands["fairseq-generate"].index("--remove-bpe") + 1] == "sentencepiece"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("recipe", MINI)
def test_mini_runs_to_the_end(recipe, tmp_path):
    ended = mini_run(recipe, tmp_path)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert any((tmp_path / "runs").rglob("train.log"))


def mini(recipe, tmp_path, **environment):
    ended = bash(EXAMPLES / recipe, MINI="1", RUNS=str(tmp_path / "runs"), GPUS="0", **environment)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("size", ["base", "wide"])
def test_vectors_of_the_trained_model_start_a_masked_one(size, tmp_path):
    """MINI=1 trains both models with vectors of one length, as at the paper's sizes."""
    recipe, vectors = "one_layer_supermask/papers.sh", tmp_path / "vectors"
    mini(recipe, tmp_path, ARM="dense", SIZE=size)
    dense = tmp_path / "runs" / f"dense-{size}-keep1-1" / "checkpoint_best.pt"
    cli.main(["dump-embeddings", str(dense), str(vectors)])
    mini(recipe, tmp_path, VECTORS=str(vectors), SIZE=size)
    of_dense = embedding_of(dense)
    masked = embedding_of(tmp_path / "runs" / f"paper-{size}-keep0.5-vectors-1" / "checkpoint_best.pt")
    kept = masked != 0
    torch.testing.assert_close(
        masked[kept], 2**0.5 * of_dense[kept], rtol=1e-4, atol=1e-6
    )  # scaled by sqrt(1 / kept share)
    assert abs(kept.float().mean() - 0.5) < 0.02


def embedding_of(checkpoint):
    return load(checkpoint).models[0].decoder.embed_tokens.weight.detach()


@pytest.mark.slow
def test_masks_start_from_the_embeddings_of_a_trained_roberta(tmp_path):
    recipe = "one_layer_supermask/glue.sh"
    mini(recipe, tmp_path, ARM="dense")
    (dense,) = (tmp_path / "runs").glob("*-dense-*/checkpoint_best.pt")
    printed = mini(recipe, tmp_path, FROM=str(dense), LAYERS="none")
    assert '"valid_accuracy"' in printed and list((tmp_path / "runs").glob("*-keep0.7-none-*-pretrained-1"))
    assert '"valid_accuracy"' in mini(recipe, tmp_path, ARM="dense", FROM=str(dense), SIZE="wide")
