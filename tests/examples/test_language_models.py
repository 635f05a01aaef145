"""The recipes of language models: each arm of the README agrees with the commands, and the table is read from the logs."""

import gzip
import re
import shlex
import subprocess
import sys

import pytest
from fairseq import options

from tests.examples.test_multi30k import EXAMPLES, bash, commands_in
from tests.support.logs import Writer
from tests.support.scripts import run_script

FOLDER = EXAMPLES / "language_models"
README = (FOLDER / "README.md").read_text()
ROWS = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \| `?([^|`]*?)`? ?\|", README, flags=re.MULTILINE)
ARMS = {arm: (plan, flags.split()) for arm, plan, flags in ROWS}
LOOPS = [arms.split() for arms in re.findall(r"^    for arm in (.*); do$", README, flags=re.MULTILINE)]


@pytest.fixture
def data(tmp_path):
    """A novel, half of it compressed, and the names of SST-2's files."""
    folder = tmp_path / "raw"
    folder.mkdir()
    names = [f"{name} {number}" for number in range(9) for name in ("Vasili", "Andrew")]
    lines = "".join(f"Prince {name} said:\n\n“Eh bien,  mon prince”\n" for name in names)
    (folder / "novel.train.txt.gz").write_bytes(gzip.compress(lines.encode()))
    for part in ("valid", "test"):
        (folder / f"{part}.txt").write_text(lines[:300])
    for part in ("train", "dev"):
        (folder / f"{part}.tsv").write_text("sentence\tlabel\n")
    return folder


def dry_run(script, data, *further, **environment):
    """Commands that a recipe prints, by name. The recipe writes nothing."""
    runs = data.parent / "runs"
    ended = bash(FOLDER / script, *further, DATA=str(data), RUNS=str(runs), DRY_RUN="1", **environment)
    assert ended.returncode == 0, ended.stderr
    assert not runs.exists()
    return commands_in(ended.stdout)


def parsed(words):
    return options.parse_args_and_arch(options.get_training_parser(), words)


def test_the_readme_trains_its_arms():
    assert list(ARMS) == ["dense", "T", "F", "f", "shallow", "M", "S", "att", "ffn", "frozen-qk"]
    assert LOOPS == [[arm for arm in ARMS if arm != "M"], list(ARMS)]


@pytest.mark.parametrize("model", ["characters", "masked"])
@pytest.mark.parametrize("arm", ARMS)
def test_arms(arm, model, data):
    if (arm, model) == ("M", "characters"):
        ended = bash(FOLDER / "run.sh", MODEL=model, ARM=arm, DATA=str(data), DRY_RUN="1")
        assert (
            ended.returncode == 2
            and "ARM=M: its Fourier transform mixes each character with all later ones" in ended.stderr
        )
        return
    plan, flags = ARMS[arm]
    train = parsed(dry_run("run.sh", data, "--lr", "1e-3", MODEL=model, ARM=arm, UPDATES="70")["fairseq-train"])
    stack = "decoder" if model == "characters" else "encoder"
    assert getattr(train, f"reservoir_{stack}") == plan
    assert ["--freeze", train.freeze] == flags if flags else train.freeze is None
    sizes = [getattr(train, f"{stack}_{size}") for size in ("embed_dim", "ffn_embed_dim", "attention_heads")]
    assert sizes == [128, 512, 4] and (train.max_update, int(train.total_num_update), train.lr) == (70, 70, [1e-3])
    assert train.lr_scheduler == "polynomial_decay" and train.save_dir.endswith(f"/runs/{model}-{arm}-70-lr-1e-3-1")


def test_scoring(data):
    commands = dry_run("run.sh", data, MODEL="characters", ARM="T")
    assert options.get_preprocessing_parser().parse_args(commands["fairseq-preprocess"]).only_source
    score = options.parse_args_and_arch(options.get_eval_lm_parser("language_modeling"), commands["fairseq-eval-lm"])
    assert score.path.endswith("characters-T-1000-1/checkpoint_last.pt")
    assert (score.tokens_per_sample, score.context_window) == (128, 32)
    commands = dry_run("run.sh", data, MODEL="masked", ARM="T")
    score = options.parse_args_and_arch(options.get_validation_parser(), commands["fairseq-validate"])
    assert (score.task, score.valid_subset) == ("masked_lm", "test")


@pytest.mark.parametrize("arm", ["dense", "M", "att"])
@pytest.mark.parametrize("updates", ["0", "70"])
def test_fine_tuning_begins_with_the_masked_model_of_its_arm(arm, updates, data):
    read = parsed(dry_run("run.sh", data, MODEL="masked", ARM=arm, UPDATES="70")["fairseq-train"])
    ended = bash(
        FOLDER / "sst2.sh", ARM=arm, UPDATES=updates, DATA=str(data), RUNS=str(data.parent / "runs"), DRY_RUN="1"
    )
    assert ended.returncode == 0, ended.stderr
    commands = commands_in(ended.stdout)
    train = parsed(commands["fairseq-train"])
    assert train.finetune_from_model == (None if updates == "0" else f"{read.save_dir}/checkpoint_last.pt")
    assert (train.reservoir_encoder, train.freeze, train.arch) == (read.reservoir_encoder, read.freeze, read.arch)
    assert train.max_positions == read.tokens_per_sample and train.save_dir.endswith(f"/sst2/{arm}-{updates}-1")
    # The same pieces and dictionary, even for the classifier without pretraining. Labels have their own dictionary.
    columns = [shlex.split(line) for line in ended.stdout.splitlines() if line.startswith("fairseq-preprocess")]
    assert [f"{read.data}/dict.txt" in words for words in columns] == [True, False]
    assert f"{data.parent}/runs/masked/joint.model" in ended.stdout


@pytest.mark.parametrize(
    "environment, message",
    [
        ({"MODEL": "words", "ARM": "T"}, "MODEL='words': choose characters or masked"),
        ({"MODEL": "masked", "ARM": "G"}, "ARM='G': name one of the arms in"),
        ({"MODEL": "masked", "ARM": "T", "DATA": ""}, "DATA is not set"),
        (
            {"MODEL": "masked", "ARM": "T", "DATA": "nowhere"},
            "neither nowhere/train.txt nor nowhere/train.txt.gz exists",
        ),
    ],
)
def test_mistakes_are_named(environment, message, data):
    ended = bash(
        FOLDER / "run.sh", **{"DATA": str(data), "RUNS": str(data.parent / "runs"), "DRY_RUN": "1", **environment}
    )
    assert ended.returncode == 2 and message in ended.stderr and ended.stderr.count("\n") == 1


def test_fine_tuning_names_a_missing_model(data):
    ended = bash(FOLDER / "sst2.sh", ARM="T", DATA=str(data), RUNS=str(data.parent / "runs"))
    assert (
        ended.returncode == 2
        and "runs/masked/joint.model does not exist; make it with MODEL=masked bash run.sh" in ended.stderr
    )


def test_text_is_spelled(tmp_path):
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.txt").write_text("Eh  bien\n\nç\n")
    (tmp_path / "out").mkdir()
    subprocess.run([sys.executable, FOLDER / "characters.py", tmp_path, tmp_path / "out"], check=True)
    assert (tmp_path / "out" / "valid.txt").read_text() == "E h ▁ b i e n\n\nç\n"


@pytest.mark.parametrize(
    "score", ["| Loss (base 2): 2.5000, Perplexity: 5.66", '{"test_loss": "2.5", "test_ppl": "5.66"}']
)
def test_the_table(score, tmp_path):
    Writer(tmp_path, per_epoch=50, mflop=None).start().inner(25, 20, 100, 30).epoch(50, 40, 100, 60).write()
    (tmp_path / "test.log").write_text(f"{score}\n")
    ended = run_script(FOLDER / "report.py", tmp_path)
    # 2 ** 2.5; 40 s of steps in 50 updates; 60 s
    cells = ["1,879,680", "1,417,344", "2.500", "5.66", "0.800", "1.0", "50"]
    assert ended.stdout.splitlines()[2] == f"| {tmp_path.name} | {' | '.join(cells)} |"


@pytest.mark.slow
def test_tiny_runs_resume_and_report(data, tmp_path):
    small = "--cpu --batch-size 4 --save-interval-updates 3".split()
    settings = {"DATA": str(data), "RUNS": str(tmp_path / "runs"), "ARM": "T"}
    for model in ("characters", "masked"):
        for updates in ("4", "7"):
            ended = bash(FOLDER / "run.sh", *small, "--max-update", updates, MODEL=model, UPDATES="7", **settings)
            assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "Loaded checkpoint" in ended.stdout
        assert re.search(rf"^\| {model}-T-7-batch-size-4-1 \|.* 7 \|$", ended.stdout, flags=re.MULTILINE)
    lines = [f"{'a fine' if n % 3 else 'an awful'} film number {n} \t{int(n % 3 > 0)}\n" for n in range(110)]
    for part, rows in (("train", lines[:100]), ("dev", lines[100:])):
        (data / f"{part}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    settings["PRETRAINED"] = str(tmp_path / "runs" / "masked-T-7-batch-size-4-1")
    ended = bash(FOLDER / "sst2.sh", "--cpu", "--batch-size", "20", UPDATES="7", FINETUNE="5", **settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| T-7-1 |" in ended.stdout and "loading pretrained model from" in ended.stdout
