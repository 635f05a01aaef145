"""The table of ``fairseq-reservoir plan``, and errors, help and signals of the command line."""

import dataclasses
import functools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fairseq_reservoir
from fairseq_reservoir import cli
from fairseq_reservoir.layers.backskip.backward_skip import ESTIMATORS
from fairseq_reservoir.layers.frozen_dtype import DTYPES
from fairseq_reservoir.options.component_options import ADAPTERS
from fairseq_reservoir.options.layer_options import NORMS, ReservoirOptions
from fairseq_reservoir.options.supermask_options import MaskOptions
from fairseq_reservoir.options.vector_options import WordVectorOptions
from fairseq_reservoir.plan.freeze_spec import COMPONENTS, FROZEN_INITS
from fairseq_reservoir.plan.kinds import letters_where, reservoir_types
from fairseq_reservoir.plan.layer_plan import PLACEMENTS
from tests.support import programs
from tests.support.choices import choices_of


def plan_lines(capsys, *arguments):
    cli.main(["plan", *arguments])
    return capsys.readouterr().out.splitlines()


def test_the_papers_iwslt_model(capsys):
    # 8 encoder layers (2 frozen), 2 decoder layers, dictionaries of 8,848 and 6,632 entries (Shen et al., 2021)
    lines = plan_lines(
        capsys,
        "--arch=reservoir_transformer_iwslt_de_en_2dec",
        "--reservoir-encoder=LLTLTLLL",
        "--source-words=8848",
        "--target-words=6632",
    )
    assert lines[-3].split()[:3] == ["total", "31,056,896", "26,851,328"]


def test_counts_place_and_flags_reach_the_model(capsys):
    lines = plan_lines(
        capsys,
        "--arch=reservoir_transformer",
        "--encoder-layers=7",
        "--reservoir-count=2",
        "--reservoir-type=transformer",
        "--freeze=emb",
        "--encoder-embed-dim=64",
        "--seed=5",
    )
    kinds = [line.split()[1] for line in lines if line.startswith("encoder.layers")]
    assert "".join(kinds) == "LLTLTLL"
    assert next(line for line in lines if line.startswith("encoder.embed_tokens")).split()[3:] == [
        "frozen",
        "640,000",
        "0",
        "0.000",
    ]
    assert lines[-2].endswith("drawn from seed 5")


@pytest.mark.parametrize("arch", ["reservoir_transformer_tiny", "supermask_one_layer_transformer_tiny"])
def test_a_decoder_of_its_own_width(capsys, arch):
    lines = plan_lines(capsys, f"--arch={arch}", "--decoder-embed-dim=32", "--target-words=1000", "--seed=4")
    rows = [line for line in lines if line.startswith("decoder.embed_tokens")]
    assert rows and all(" 32,000 " in row for row in rows)


def test_joined_dictionaries(capsys):
    lines = plan_lines(capsys, "--arch=reservoir_transformer_tiny", "--share-all-embeddings", "--source-words=1000")
    assert [line.split()[1] for line in lines if "tied to" in line] == ["tied", "tied"]


# Parameters that one more entry adds to each model: one row, a row of embedding and output projection, a tied row and a bias.
@pytest.mark.parametrize(
    "arch, row", [("transformer_tiny", 64), ("transformer_lm_gpt", 2 * 768), ("roberta_base", 768 + 1)]
)
def test_plain_architectures(capsys, arch, row):
    fewer, more = (plan_lines(capsys, f"--arch={arch}", f"--source-words={entries}") for entries in (1000, 1001))
    assert fewer[-2].startswith("trained 100.00%")
    totals = [int(lines[-3].split()[1].replace(",", "")) for lines in (fewer, more)]
    assert totals[1] - totals[0] == row


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--arch=no_such"], "--arch no_such: unknown; this plugin has reservoir_"),
        (
            ["--arch=reservoir_transformer", "--reservoir-encoder=LRL"],
            "--reservoir-encoder 'LRL': R does not stand for one kind of layer",
        ),
        (
            ["--arch=reservoir_transformer", "--freeze=layers.9.ffn"],
            "--freeze 'layers.9.ffn': 'layers.9.ffn' matches nothing",
        ),
        (
            ["--arch=reservoir_transformer", "--reservoir-norm=post"],
            "--reservoir-norm 'post': choose from paper, model",
        ),
        (
            ["--arch=reservoir_transformer", "--reservoir-kernel-sizes=4"],
            "--reservoir-kernel-sizes '4': must be odd",
        ),
        (
            [
                "--arch=reservoir_transformer",
                "--reservoir-encoder=LG",
                "--encoder-embed-dim=125",
                "--encoder-attention-heads=5",
            ],
            "--encoder-embed-dim 125: G layers need an even width",
        ),
        (
            ["--arch=reservoir_transformer", "--reservoir-decoder=Ff"],
            "--reservoir-decoder Ff: no layer attends to the source",
        ),
        (
            [
                "--arch=reservoir_transformer",
                "--reservoir-decoder=TT",
                "--reservoir-encoder=T",
                "--freeze-except=layers.0.ffn",
            ],
            "--freeze-except layers.0.ffn freezes every parameter (encoder T, decoder TT); leave at least one parameter to train",
        ),
        (["--arch=wav2vec2"], "--arch wav2vec2: only translation models, language models and text encoders"),
        (
            ["--arch=transformer", "--share-all-embeddings", "--source-words=100", "--target-words=200"],
            "--target-words 200: with --share-all-embeddings there is only one dictionary; its size is --source-words 100",
        ),
        (
            ["--arch=transformer", "--share-all-embeddings", "--target-words=200"],
            "--target-words 200: with --share-all-embeddings there is only one dictionary; its size is --source-words 10000",
        ),
        (
            ["--arch=transformer_lm", "--target-words=9"],
            "--target-words 9: transformer_lm has only one dictionary; set its size with --source-words",
        ),
        (
            ["--arch=reservoir_transformer", "--source-words=4"],
            "--source-words 4: must be more than 4, the number of fairseq's special",
        ),
        (
            ["--arch=reservoir_transformer", f"--source-words={10**21}"],
            f"--source-words {10**21}: must be at most 2147483647",
        ),
        (["--arch=transformer", "--encoder-layers=many"], "--encoder-layers: invalid int value: 'many'"),
        (["--arch=reservoir_transformer", "--dropout=x"], "--dropout: invalid float value: 'x'"),
        (["--arch=reservoir_transformer", "--activation-fn=step"], "--activation-fn: invalid choice: 'step'"),
        (["--arch=reservoir_transformer", "--freeze"], "--freeze: expected one argument"),
        (["--arch=reservoir_transformer", "--no-such"], "unrecognized arguments: --no-such"),
        (
            ["data-bin", "--arch=reservoir_transformer"],
            "unrecognized arguments: data-bin; this command needs no data: remove data-bin",
        ),
        (
            ["--arch=transformer", "--reservoir-encoder=LF"],
            "unrecognized arguments: --reservoir-encoder=LF; --reservoir-encoder belongs to --arch reservoir_transformer",
        ),
        (["--arch=reservoir_transformer", "--reservoir-seed=x"], "--reservoir-seed 'x': must be a whole number"),
        (
            ["--arch=reservoir_transformer", "--reservoir-type=gru"],
            "--reservoir-type gru: has no effect without --reservoir-count",
        ),
        (
            ["--arch=reservoir_transformer", "--reservoir-encoder=LFL", "--reservoir-placement=top"],
            "--reservoir-placement top: has no effect without --reservoir-count",
        ),
        (["--arch=reservoir_transformer", "--encoder-layers=0"], "--encoder-layers 0: must be at least 1"),
        (["--arch=reservoir_transformer", "--decoder-layers=-1"], "--decoder-layers -1: must be at least 1"),
        (
            ["--arch=reservoir_transformer", "--encoder-attention-heads=0"],
            "--encoder-attention-heads 0: must be from 1 to 1000000",
        ),
    ],
)
def test_refusals_are_one_line(arguments, message):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["plan", *arguments])
    assert str(exit_.value).startswith(f"fairseq-reservoir: error: {message}") and "\n" not in str(exit_.value)


def test_help_explains_every_flag_of_the_plugin_and_names_its_values(capsys):
    with pytest.raises(SystemExit):
        cli.main(["plan", "--help"])
    text = capsys.readouterr().out
    for option in (
        f for options in (ReservoirOptions, MaskOptions, WordVectorOptions) for f in dataclasses.fields(options)
    ):
        if not option.name.startswith("_"):
            assert f"  --{option.name.replace('_', '-')}" in text, f"add {option.name} to commands/flag_groups.py"

    def words_of_help(flag):
        return set(re.findall(r"\w+", text.split(f"\n  --{flag} ")[1].split("\n  --")[0]))

    values = {name.replace("_", "-"): choices for name, choices in choices_of(MaskOptions).items()}
    # the help names only the first and the last number
    values["mask-embeddings"] = [name for name in values["mask-embeddings"] if not name.isdigit()] + ["3", "16"]
    values |= {
        "freeze": [name for name in COMPONENTS if "." not in name],
        "frozen-init": FROZEN_INITS,
        "frozen-adapter": ADAPTERS,
    }
    values |= {"reservoir-type": reservoir_types(), "reservoir-placement": PLACEMENTS, "reservoir-norm": NORMS}
    values |= {
        "reservoir-encoder": letters_where("encoder"),
        "reservoir-decoder": letters_where("decoder"),
        "frozen-dtype": DTYPES,
        "backskip": ESTIMATORS,
    }
    missing = {flag: set(names) - words_of_help(flag) for flag, names in values.items()}
    assert {flag: names for flag, names in missing.items() if names} == {}


@pytest.mark.parametrize("flags", [[], ["-S"]], ids=["with everything", "without torch and fairseq"])
def test_version(flags):
    """``-S`` starts Python without the installed packages."""
    command = [sys.executable, *flags, "-m", "fairseq_reservoir_cli", "--version"]
    variables = os.environ | {"PYTHONPATH": str(Path(fairseq_reservoir.__file__).parents[1])}
    finished = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert (finished.stdout, finished.stderr, finished.returncode) == (
        f"fairseq-reservoir {fairseq_reservoir.__version__}\n",
        "",
        0,
    )


def test_a_closed_pipe_is_not_an_error(monkeypatch):
    """``fairseq-reservoir plan ... | head -3`` closes its pipe early."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit) as ending:
            cli.main(["plan", "--arch", "reservoir_transformer_tiny"])
    assert ending.value.code == 0


def test_ctrl_c_prints_no_traceback(tmp_path):
    """The signal arrives while the command reads a pipe. Opening the pipe for writing waits until the command opens it."""
    os.mkfifo(tmp_path / "grid.yaml")
    command = [
        sys.executable,
        "-m",
        "fairseq_reservoir_cli",
        "sweep",
        tmp_path / "grid.yaml",
        "--out",
        tmp_path / "runs",
    ]
    # A shell starts background processes with SIGINT ignored, and their child processes inherit that.
    handle_interrupts = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=handle_interrupts)
    with open(tmp_path / "grid.yaml", "w"):
        started.send_signal(signal.SIGINT)
        assert started.communicate(timeout=300) == (b"", None)
    assert started.returncode == 130


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_standard_output_on_a_full_disk():
    with open("/dev/full", "w") as full:
        finished = subprocess.run(
            programs.command_of("fairseq-reservoir", "size", "reservoir_transformer_tiny"),
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert (
        finished.returncode == 1 and "standard output: cannot be written (No space left on device)" in finished.stderr
    )
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    "flags, cause",
    [
        ("reservoir_roberta --reservoir-encoder LF --task sentence_prediction --criterion sentence_prediction", None),
        (
            "reservoir_roberta --reservoir-encoder LF --task sentence_prediction",
            "these flags alone: .*classification_head_name",
        ),
        ("frozen_s2t_transformer_s --task speech_to_text", "data, because it needs input_feat_per_channel, "),
    ],
)
def test_plans_of_models_with_other_tasks(flags, cause, capsys):
    command = ["plan", "--arch", *flags.split()]
    if cause is None:
        cli.main(command)
        assert "encoder.layers.1" in capsys.readouterr().out
    else:
        with pytest.raises(SystemExit) as refusal:
            cli.main(command)
        assert re.search(f": cannot be built with(out)? {cause}.*$", str(refusal.value))
