"""The recipes of frozen components: the README's tables agree with the commands, and its shares with the paper."""

import re
import shlex

import pytest
from fairseq import options

from fairseq_reservoir import cli
from fairseq_reservoir.studies.sweep.grid import read_grid
from tests.examples.test_multi30k import EXAMPLES, bash, commands_in

FOLDER = EXAMPLES / "frozen_components"
README = (FOLDER / "README.md").read_text()
CELL = r" ?`?([^|`]*?)`? \|"
ROWS = {row[0]: row[1:] for row in re.findall(rf"^\|{CELL * 7}$", README, flags=re.MULTILINE) if row[0][0].isdigit()}
FLAGS = {arm: row[1].strip().split() for arm, row in ROWS.items()}
# the paper's arithmetic: embeddings 36,000 x 1024, attention 18 x 4 x 1024^2, feed-forward 12 x 2 x 1024 x width
SIZES = {width: {"emb": 36_000 * 1024, "att": 18 * 4 * 1024**2, "ffn": 12 * 2 * 1024 * width} for width in (4096, 1024)}


@pytest.fixture
def data(data):
    """The folder, with the names of a text for language models added."""
    for name in ("train.txt", "valid.txt.gz", "test.txt"):
        (data / name).touch()
    return data


def parsed(script, arm, data, *further, **environment):
    """Options of the recipe's fairseq-train."""
    ended = bash(
        FOLDER / script, *further, ARM=arm, DATA=str(data), RUNS=str(data / "runs"), DRY_RUN="1", **environment
    )
    assert ended.returncode == 0, ended.stderr
    return options.parse_args_and_arch(options.get_training_parser(), commands_in(ended.stdout)["fairseq-train"])


def given(args):
    """Flags of the freeze spec in the options."""
    flags = {"--freeze": args.freeze, "--frozen-init": None if args.frozen_init == "model" else args.frozen_init}
    return [word for flag, value in flags.items() if value for word in (flag, value)]


def test_the_readme_has_all_rows():
    assert list(ROWS) == ["0", "1", "2", "3", "4", "5", "6", "2.1", "3.1"]
    for arm, (trained, *_) in ROWS.items():
        named = {"embeddings": "emb", "attention": "att", "FFN": "ffn"}
        frozen = set(named.values()) - {named[word] for word in trained.split(", ")}
        assert set(FLAGS[arm][1].split(",") if FLAGS[arm] else []) == frozen


@pytest.mark.parametrize("arm", ROWS)
def test_rows_on_multi30k(arm, data):
    train = parsed("run.sh", arm, data, FFN="128", UPDATES="7")
    assert given(train) == FLAGS[arm] and train.save_dir.endswith(f"/frozen-{arm}-128-7-1")
    widths = (train.encoder_embed_dim, train.encoder_ffn_embed_dim, train.decoder_ffn_embed_dim, train.encoder_layers)
    assert widths == (128, 128, 128, 3) and (train.max_update, train.share_all_embeddings) == (7, True)


@pytest.mark.parametrize("arm", ["0", "4", "6"])
def test_rows_of_the_language_model(arm, data):
    train = parsed("language_model.sh", arm, data, "--max-update", "7")
    assert given(train) == FLAGS[arm] and (train.arch, train.max_update) == ("reservoir_transformer_lm_study", 7)
    assert train.share_decoder_input_output_embed and train.save_dir.endswith(f"/runs/{arm}-1")


LM_ROWS = re.findall(r"^\| (\d) \| (\.\d{3}) \| (\.\d\d) \| [\d.]+ \|$", README, flags=re.MULTILINE)


@pytest.mark.parametrize("arm, share, papers", LM_ROWS)
def test_shares_of_the_language_model_at_the_papers_size(arm, share, papers, data):
    """6 layers of 4 x 512^2 weights in attention and 2 x 512 x 2048 in feed-forward blocks, and 32,000 tied vectors of 512."""
    train = parsed("language_model.sh", arm, data, SIZE="paper")
    assert (train.decoder_layers, train.decoder_attention_heads, train.save_dir[-8:]) == (6, 8, f"{arm}-paper-1"[-8:])
    width, ffn = train.decoder_embed_dim, train.decoder_ffn_embed_dim
    assert (width, train.decoder_input_dim, train.decoder_output_dim, ffn) == (512, 512, 512, 2048)
    sizes = {"emb": 32_000 * width, "att": 6 * 4 * width**2, "ffn": 6 * 2 * width * ffn}
    trained = 1 - sum(sizes[group] for group in train.freeze.split(",")) / sum(sizes.values())
    assert f"{trained:.3f}"[1:] == share
    assert abs(trained - float(papers)) < (0.012 if arm == "2" else 0.006)


@pytest.mark.parametrize("arm", "0123456")
def test_the_grid_of_language_models_trains_the_rows_of_the_recipe(arm, data, tmp_path, monkeypatch):
    """The same model and the same length; the grid alone chooses among learning rates."""
    monkeypatch.delenv("BIN", raising=False)
    runs, choices = read_grid(str(EXAMPLES / "sweeps" / "frozen_components_lm.yaml"), str(tmp_path))
    (run,) = [run for run in runs if run.name.startswith(f"row-{arm}-lr2e-3-")]
    words = list(run.steps[0].words[1:])
    ours = vars(options.parse_args_and_arch(options.get_training_parser(), words))
    theirs = vars(parsed("language_model.sh", arm, data, SIZE="paper"))
    differing = {key for key in ours if ours[key] != theirs[key]}
    assert differing <= {"data", "save_dir", "user_dir", "num_workers"}


def test_a_miniature_corpus_trains_the_language_model_at_the_papers_size(tmp_path):
    ended = bash(
        FOLDER / "language_model.sh", ARM="0", SIZE="paper", MINI="1", RUNS=str(tmp_path / "runs"), DRY_RUN="1"
    )
    assert ended.returncode == 0, ended.stderr
    commands = commands_in(ended.stdout)
    assert commands["fairseq-preprocess"][-2:] == ["--padding-factor", "32000"]
    train = options.parse_args_and_arch(options.get_training_parser(), commands["fairseq-train"])
    assert (train.decoder_embed_dim, train.decoder_ffn_embed_dim, train.decoder_layers) == (512, 2048, 6)


def test_the_table_of_language_models_has_all_rows():
    assert [row for row, *_ in LM_ROWS] == list("123456")


def test_the_language_model_is_scored_in_the_folder_of_the_report(data):
    ended = bash(FOLDER / "language_model.sh", ARM="2", DATA=str(data), RUNS=str(data / "runs"), DRY_RUN="1")
    (scoring,) = re.findall(r"^fairseq-eval-lm .*tee -a (\S+)$", ended.stdout, flags=re.MULTILINE)
    assert scoring == f"{data}/runs/2-1/test.log.part" and f"mv {scoring} {data}/runs/2-1/test.log \n" in ended.stdout


@pytest.mark.parametrize("arm, drawn", [("0", []), ("2", ["--frozen-init", "glorot"]), ("2.1", [])])
def test_a_row_at_the_papers_size(arm, drawn, data):
    """Random parts have the paper's distribution. FLAGS are those of the study."""
    train = parsed("run.sh", arm, data, BIN="data-bin/wmt18_tr_en", FFN="1024")
    assert given(train) == FLAGS[arm] + drawn and train.arch == "frozen_transformer_wmt_en_de_big"
    sizes = (
        train.encoder_embed_dim,
        train.encoder_ffn_embed_dim,
        train.decoder_ffn_embed_dim,
        train.encoder_attention_heads,
    )
    assert sizes == (1024, 1024, 1024, 16) and train.share_all_embeddings


@pytest.mark.parametrize("script", ["run.sh", "language_model.sh"])
def test_an_unknown_row_is_named(script, data):
    ended = bash(FOLDER / script, ARM="7", DATA=str(data), DRY_RUN="1")
    assert (
        ended.returncode == 2
        and ended.stderr.startswith("frozen_components: ARM='7': ")
        and ended.stderr.count("\n") == 1
    )


@pytest.mark.parametrize("arm", ["1", "2", "3", "4", "5", "6"])
def test_the_papers_shares(arm, capsys):
    (command,) = re.findall(r"^    fairseq-reservoir (plan .*)$", README, flags=re.MULTILINE)
    command = shlex.split(command)
    assert command[-2:] == FLAGS["2"]
    cli.main([*command[:-2], *FLAGS[arm]])
    printed = float(re.search(r"([\d.]+)% of those in matrices", capsys.readouterr().out)[1])
    frozen = FLAGS[arm][1].split(",")
    for width, column in ((4096, 2), (1024, 4)):
        share = 1 - sum(SIZES[width][group] for group in frozen) / sum(SIZES[width].values())
        assert f"{share:.4f}"[1:] == ROWS[arm][column].strip()
    assert printed == float(ROWS[arm][2]) * 100


def test_the_swapped_ratios():
    """The paper prints .55 for row 2 and .45 for row 4."""
    assert (ROWS["2"][4].strip(), ROWS["4"][4].strip()) == (".4510", ".5490")
    assert "row 2 as .55 and row 4 as .45" in README
