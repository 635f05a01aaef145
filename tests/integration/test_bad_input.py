"""Every mistake gives one line with the flag or file, the value and the allowed values, before any work."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fairseq_reservoir import cli
from tests.support.commands import RUN, error_of, start_training, train

SUPERMASK = "--arch supermask_one_layer_transformer"
# Flags and the expected start of the line: flag, value, and allowed values.
MISTAKES = {
    "wrong length": ("--reservoir-encoder LLFLL --encoder-layers 3", "--encoder-layers 3: --reservoir-encoder LLFLL has 5 layers"),
    "empty plan": ("--reservoir-encoder ''", "--reservoir-encoder '': the plan is empty; a plan consists of the letters L T F"),
    "unknown letter": ("--reservoir-encoder LXL", "--reservoir-encoder 'LXL': unknown letter 'X'; a plan consists of the letters L T F"),
    "R": ("--reservoir-encoder LRL", "--reservoir-encoder 'LRL': R does not stand for one kind of layer; use T, F, G or C"),
    "4": ("--reservoir-encoder 4", "--reservoir-encoder '4': no letter follows the count 4"),
    "0L": ("--reservoir-encoder 0L", "--reservoir-encoder '0L': a count of 0 before L"),
    "plan and count": (
        "--reservoir-encoder LFL --reservoir-count 1",
        "--reservoir-encoder 'LFL' and --reservoir-count 1: give the plan or the count, not both",
    ),
    "more reservoirs than fit": (
        "--encoder-layers 5 --reservoir-count 4",
        "--reservoir-count 4: 5 layers with --reservoir-placement alternate have room for 0 to 3 reservoirs",
    ),
    "more than layers": (
        "--decoder-layers 2 --reservoir-decoder-count 3 --reservoir-placement top",
        "--reservoir-decoder-count 3: 2 layers with --reservoir-placement top have room for 0 to 2 reservoirs",
    ),
    "no layer that sees the source": (
        "--reservoir-decoder F",
        "--reservoir-decoder F: no layer attends to the source; use at least one of L, T, ",
    ),
    "none kept that sees the source": (
        "--reservoir-decoder LF --decoder-layers-to-keep 1",
        "--decoder-layers-to-keep 1: no kept layer of --reservoir-decoder LF attends to the source; keep at least one of L, T, ",
    ),
    "another kind with cross self-attention": (
        "--reservoir-decoder LS --cross-self-attention --no-cross-attention",
        "--reservoir-decoder LS: with --cross-self-attention, only L and T layers",
    ),
    "product noise beside another trained kind": (
        "--reservoir-encoder LfF --quant-noise-pq 0.1 --quant-noise-pq-block-size 2",
        "--quant-noise-pq 0.1: not supported in f layers; remove the flag",
    ),
    "odd width for G": ("--reservoir-encoder LG --encoder-embed-dim 15 --encoder-attention-heads 3",
                        "--encoder-embed-dim 15: G layers need an even width"),
    "M in a decoder": ("--reservoir-decoder LM", "--reservoir-decoder 'LM': M is not allowed in a decoder"),
    "unknown component": ("--freeze attention", "--freeze 'attention': unknown component 'attention'"),
    "nothing kept": (f"{SUPERMASK} --mask-keep-ratio 0", "--mask-keep-ratio 0: must be greater than 0 and at most 1"),
    "more than all kept": (f"{SUPERMASK} --mask-keep-ratio 1.5", "--mask-keep-ratio 1.5: must be greater than 0 and at most 1"),
    "coats above the keep ratio": (
        f"{SUPERMASK} --mask-coats 0.6,0.3",
        "--mask-coats '0.6,0.3': each ratio must be smaller than the ratio before it, and the first coat's ratio must be smaller than the "
        "keep ratio",
    ),
    "unsorted schedule": (
        f"{SUPERMASK} --mask-keep-schedule 500:0.5,100:0.7",
        "--mask-keep-schedule '500:0.5,100:0.7': updates must be above 0 and increase, and ratios must not increase",
    ),
    "no layers behind masks": (f"{SUPERMASK} --encoder-layers 0", "--encoder-layers 0: must be at least 1"),
    "quantization noise": (f"{SUPERMASK} --quant-noise-pq 0.1", "--quant-noise-pq 0.1: not supported with masked weights"),
    "unknown init": (f"{SUPERMASK} --mask-init-weights normal", "--mask-init-weights 'normal': choose from kaiming_uniform,"),
}  # fmt: skip


# These need a model.
LATE_MISTAKES = {
    "everything pinned": (
        f"{SUPERMASK} --mask-pin 0.9999999",
        "--mask-pin 0.9999999: pins all mask entries of encoder.embed_tokens, so no entry is learned. The shortest rows have only 16 "
        "entries; give a value below 0.96875",
    ),
    "everything frozen": (
        f"{SUPERMASK} --freeze att,ffn,emb,ln,out",
        "--freeze att,ffn,emb,ln,out freezes every parameter",
    ),
    "random masks and plain LayerNorms": (
        f"{SUPERMASK} --mask-random --mask-layernorm plain",
        "--mask-random --mask-layernorm plain --mask-embeddings masked freezes every parameter",
    ),
    "embeddings of another dimension": (
        f"{SUPERMASK} --encoder-embed-path VECTORS",
        "--encoder-embed-path VECTORS: its vectors have 3 numbers, but the model needs 16",
    ),
}


def assert_refused(answer, message):
    line, status = answer
    assert line.startswith("fairseq-train: error: ") and line.count("\n") == 1 and line.endswith("\n"), line
    assert message in line
    assert status not in (0, None)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_flags_are_refused_before_data_is_looked_for(tmp_path, mistake):
    flags, message = MISTAKES[mistake]
    flags = [word.strip("'") for word in flags.split()]
    save_dir = tmp_path / "checkpoints"
    assert_refused(error_of(tmp_path / "no-data", *flags, "--save-dir", save_dir), message)
    assert not save_dir.exists()


LONG = "9" * 5000
# Values that a shell loop would not write but a user may: a flag, a value, and the expected text.
ODD_VALUES = [
    ("--reservoir-encoder", "1000000L", "more than 1000 layers"),
    ("--reservoir-encoder", "9999999999999999999999999L", "more than 1000 layers"),
    ("--reservoir-encoder", f"{LONG}L", "more than 1000 layers"),
    ("--encoder-layers", "1000000", "must be at least 1 and at most 1000"),
    ("--reservoir-count", "many", "invalid int value: 'many'"),
    ("--reservoir-kernel-sizes", LONG, "must be odd numbers up to 1023, separated by commas"),
    ("--reservoir-kernel-sizes", "1000001", "must be odd numbers up to 1023, separated by commas"),
    ("--reservoir-seed", "${oc.env:HOME}", "must be a whole number"),
    ("--reservoir-seed", LONG, "must be a whole number"),
    ("--freeze", "", "is empty; give it a value or remove the flag"),
    ("--freeze", "em\nb", "--freeze 'em\\nb': unknown component 'em\\nb'"),
    ("--freeze", f"layers.{LONG}", "give the layer numbers as layers.<i> or layers.<i>-<j>"),
    ("--freeze", "--", "is not a valid value"),
    ("--freeze-except", "", "is empty"),
    ("--encoder-embed-dim", "0", "must be from 1 to 1000000"),
    ("--decoder-ffn-embed-dim", "-1", "must be from 1 to 1000000"),
    ("--decoder-attention-heads", "0", "must be from 1 to 1000000"),
    (f"{SUPERMASK} --encoder-attention-heads", "0", "must be from 1 to 1000000"),
    ("--arch frozen_transformer_tiny --encoder-embed-dim", "0", "must be from 1 to 1000000"),
    ("--dropout", "nan", "must be from 0 to below 1"),
    ("--dropout", "-1", "must be from 0 to below 1"),
    ("--encoder-layerdrop", "2", "must be from 0 to below 1"),
    (f"{SUPERMASK} --mask-coats", "", "is empty"),
    (f"{SUPERMASK} --mask-keep-schedule", "", "is empty"),
    (f"{SUPERMASK} --mask-keep-ratio", "1e-320", "must be at least 1e-09"),
    (f"{SUPERMASK} --mask-keep-schedule", f"{LONG}:0.5", "must be UPDATE:SHARE items"),
    (f"{SUPERMASK} --attention-dropout", "inf", "must be from 0 to below 1"),
    ("--arch frozen_transformer_tiny --freeze", "", "is empty"),
    ("--arch frozen_transformer_tiny --activation-dropout", "-0.5", "must be from 0 to below 1"),
    ("--optimizer freeze_skip --freeze-schedule", "", "is empty"),
    ("--optimizer freeze_skip --freeze-schedule", "0:em\nb", "unknown component"),
    ("--optimizer freeze_skip --freeze-schedule", f"{LONG}:emb", "is not UPDATE:COMPONENTS"),
    ("--optimizer freeze_skip --freeze-rotate", f"1:{LONG}", "must be K:PERIOD"),
    ("--optimizer freeze_skip --freeze-update-every", f"ffn:{LONG}", "is not COMPONENT:N"),
    ("--save-dir", "", "is empty; name a folder"),
    ("--save-dir", "a\0b", "contains a control character"),
    ("--save-dir", "x" * 300, "is too long for the name of a folder"),
    ("--save-dir", "x/" * 2000, "is too long for the name of a folder"),
]  # fmt: skip


@pytest.mark.parametrize(
    "flag, value, message", ODD_VALUES, ids=[f"{flag.split()[-1]}-{value[:12]!r}" for flag, value, _ in ODD_VALUES]
)
def test_odd_values_are_refused_before_data_is_looked_for(tmp_path, monkeypatch, flag, value, message):
    monkeypatch.chdir(tmp_path)
    *before, flag = flag.split()
    line, status = answer = error_of(tmp_path / "no-data", *before, "--save-dir", "checkpoints", f"{flag}={value}")
    assert_refused(answer, message)
    assert flag in line and len(line) < 1000
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "cannot be read"),
        ("", "line 1 must be COUNT DIM"),
        ("nonsense\n", "line 1 must be COUNT DIM"),
        (f"1 {LONG}\n", "the model needs 16"),
        ("1 16\na 1 2 3\n", "line 2 has 3 numbers, but the model needs 16"),
        ("1 16\na" + " x" * 16 + "\n", "line 2 has text in place of a number"),
        ("1 16\na" + " nan" * 16 + "\n", "line 2 contains a number that is not finite"),
        ("1 16\nzzz" + " 1" * 16 + "\n", "contains none of the dictionary's entries"),
    ],
)
@pytest.mark.parametrize("side", ["encoder", pytest.param("decoder", marks=pytest.mark.slow)])
def test_word_vectors_of_reservoir_models_are_checked(toy_data, tmp_path, side, content, message):
    vectors, save_dir = tmp_path / "vectors", tmp_path / "checkpoints"
    if content is not None:
        vectors.write_text(content)
    flags = (
        f"--reservoir-encoder LF --decoder-layers 1 --{side}-embed-path {vectors} --max-update 1 --save-dir {save_dir}"
    )
    line, status = answer = error_of(toy_data, *flags.split())
    assert_refused(answer, message)
    assert f"--{side}-embed-path {vectors}: " in line
    assert not list(save_dir.rglob("*"))


def test_word_vectors_of_a_decoder_are_checked(toy_data, tmp_path):
    flags = ["--reservoir-encoder", "LF", "--decoder-layers", 1, "--decoder-embed-path", tmp_path / "vectors"]
    line, status = error_of(toy_data, *flags, "--max-update", 1, "--no-save")
    assert_refused((line, status), f"--decoder-embed-path {tmp_path}/vectors: cannot be read")


@pytest.mark.parametrize(
    "arch",
    [
        "frozen_transformer_tiny --freeze emb",
        pytest.param("transformer --encoder-embed-dim 64 --decoder-embed-dim 64", marks=pytest.mark.slow),
        "lstm --encoder-embed-dim 64",
    ],
)
def test_word_vectors_of_any_model_are_checked_and_counted(toy_data, tmp_path, arch, caplog):
    """fairseq would build the model without them, or fail with torch's own error."""
    vectors, save_dir = tmp_path / "vectors", tmp_path / "checkpoints"
    flags = f"--arch {arch} --encoder-embed-path {vectors} --max-update 1 --save-dir {save_dir}".split()
    for content, message in (
        ("1 3\na 1 2 3\n", "its vectors have 3 numbers, but the model needs 64"),
        (
            f"1 64\nzzz{' 1' * 64}\n",
            "contains none of the dictionary's entries; is this the file of another language?",
        ),
    ):
        vectors.write_text(content)
        line, status = answer = error_of(toy_data, *flags, begin=RUN)
        assert_refused(answer, message)
        assert f"word vectors {vectors}: " in line
    assert not list(save_dir.rglob("*"))
    vectors.write_text(f"1 64\na{' 0.25' * 64}\n")
    with caplog.at_level("INFO"):
        run = train(toy_data, *flags, "--no-save", begin=RUN)
    assert f"word vectors {vectors}: 1 of " in caplog.text
    row = run.trainer.task.source_dictionary.index("a")
    assert run.initial["encoder.embed_tokens.weight"][row].eq(0.25).all()


@pytest.mark.parametrize("mistake", LATE_MISTAKES)
def test_flags_are_refused_before_anything_is_written(toy_data, tmp_path, mistake):
    vectors, save_dir = tmp_path / "vectors", tmp_path / "checkpoints"
    vectors.write_text("1 3\na 1 2 3\n")
    flags, message = (text.replace("VECTORS", str(vectors)) for text in LATE_MISTAKES[mistake])
    assert_refused(error_of(toy_data, *flags.split(), "--max-update", 1, "--save-dir", save_dir), message)
    assert not list(save_dir.rglob("*"))


@pytest.fixture
def data(toy_data, tmp_path):
    """A copy of the corpus to damage."""
    return shutil.copytree(toy_data, tmp_path / "data")


def missing_dictionary(data):
    (data / "dict.de.txt").unlink()
    return "dict.de.txt: no such dictionary; create it with fairseq-preprocess"


def empty_corpus(data):
    for side in ("en", "de"):  # like the output of fairseq-preprocess for an empty text
        MMapIndexedDatasetBuilder(f"{data}/valid.en-de.{side}.bin").finalize(f"{data}/valid.en-de.{side}.idx")
    return "valid.en-de.en.idx: has 0 sentences; at least 1 is needed"


def empty_file(data):
    (data / "train.en-de.en.idx").write_bytes(b"")
    return "train.en-de.en.idx: has 0 sentences; at least 1 is needed"


def sides_of_different_length(data):
    for suffix in ("idx", "bin"):
        shutil.copy(data / f"valid.en-de.de.{suffix}", data / f"train.en-de.de.{suffix}")
    return "train.en-de.en.idx has 160 sentences and"


def missing_split(data):
    (data / "train.en-de.en.idx").unlink()
    return "train.en-de.en.idx: no such binarised file (--train-subset)"


@pytest.mark.parametrize(
    "spoil", [missing_dictionary, empty_corpus, empty_file, sides_of_different_length, missing_split]
)
def test_files_are_refused_before_anything_is_written(data, tmp_path, spoil):
    message = spoil(data)
    save_dir = tmp_path / "checkpoints"
    assert_refused(error_of(data, "--save-dir", save_dir), message)
    assert not save_dir.exists()


def test_a_save_folder_under_a_file_is_refused(toy_data, tmp_path):
    (tmp_path / "file").write_text("kept")
    assert_refused(error_of(toy_data, "--save-dir", tmp_path / "file" / "checkpoints"), "file is not a folder")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.fixture
def ordinary_user():
    """Set the real user id to that of an ordinary user, because root may write everywhere."""
    real, effective = os.getuid(), os.geteuid()
    if effective == 0:
        os.setreuid(65534, 0)
    yield
    os.setreuid(real, effective)


def test_an_unwritable_save_folder_is_refused(toy_data, tmp_path, ordinary_user):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    assert_refused(error_of(toy_data, "--save-dir", folder / "checkpoints"), f"{folder} cannot be written")
    assert list(folder.iterdir()) == []


def test_output_of_a_command(toy_data, tmp_path):
    save_dir = tmp_path / "checkpoints"
    ended = start_training(toy_data, "--reservoir-encoder", "LRL", "--save-dir", save_dir, fresh=True)
    assert_refused(
        (ended.stderr, ended.returncode),
        "--reservoir-encoder 'LRL': R does not stand for one kind of layer; use T, F, G or C",
    )
    assert not save_dir.exists()


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("fairseq_reservoir", None, "is not a folder with a file __init__.py"),
        ("fairseq_reservoir", "", "a package fairseq_reservoir is already imported from "),
        ("imports_nothing_there", "import nope", "cannot be imported: ModuleNotFoundError: No module named 'nope'"),
        ("is_no_python", "for", "cannot be imported: SyntaxError: "),
    ],
)
def test_user_dirs_that_cannot_be_imported(tmp_path, monkeypatch, name, text, message):
    """A folder with the plugin's name is not mistaken for the plugin."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / name
    if text is not None:
        folder.mkdir()
        (folder / "__init__.py").write_text(text)
    with pytest.raises(SystemExit) as leaving:
        cli.main(["plan", "--arch", "reservoir_transformer_tiny", "--user-dir", str(folder)])
    line = str(leaving.value)
    assert line.startswith(f"fairseq-reservoir: error: --user-dir {folder}: {message}") and "\n" not in line


def test_the_bare_name_is_the_plugin_from_every_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["plan", "--arch", "reservoir_transformer_tiny", "--user-dir", "fairseq_reservoir"])
    assert "encoder.layers.0" in capsys.readouterr().out


def test_a_link_to_the_plugin_is_the_plugin(tmp_path, capsys):
    (tmp_path / "plugin").symlink_to(Path(cli.__file__).parent)
    cli.main(["plan", "--arch", "reservoir_transformer_tiny", "--user-dir", str(tmp_path / "plugin")])
    assert "encoder.layers.0" in capsys.readouterr().out
