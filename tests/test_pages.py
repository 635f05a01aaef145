"""README and docs/: every command works, and the pages are built without warnings."""

import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from fairseq import options

from fairseq_reservoir import cli
from fairseq_reservoir.freezing.freeze_schedule import FreezeSchedule
from fairseq_reservoir.models.reservoir.language_model import PRESETS as LM_PRESETS
from fairseq_reservoir.models.reservoir.transformer import PRESETS
from fairseq_reservoir.models.supermask.language_model import PRESETS as MASKED_LM_PRESETS
from fairseq_reservoir.models.supermask.transformer import PRESETS as MASKED_PRESETS
from fairseq_reservoir.options.freeze_skip_options import FreezeSkipOptions
from fairseq_reservoir.options.reading import read
from fairseq_reservoir.options.supermask_options import MaskOptions
from fairseq_reservoir.options.vector_options import RobertaVectorOptions
from fairseq_reservoir.plan.kinds import letters_where
from tests.support.commands import forget_earlier_runs, train
from tests.support.warm_start import run_command

ROOT = Path(__file__).parent.parent
PAGES = {
    path.name: path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
TEXT = "\n".join(PAGES.values())
BLOCK = re.compile(r"^```sh\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^|\n)\n((?:    [^\n]+\n)+)")
# Commands that another test runs, or that need a network: the beginning of the command, and the test.
ELSEWHERE = {
    "bash examples/quickstart.sh": "tests/test_quickstart.py",
    "bash scripts/setup.sh": "tests/test_setup.py",
    "bash scripts/test.sh": ".ci/run",
    "python scripts/mutate.py": "tests/scripts/test_mutate.py",
    "pip install pre-commit": "scripts/test.sh, which runs the same tools",
    "pip install notebook": "tests/test_notebook.py, which executes the notebook",
    "fairseq-hydra-train": "tests/test_hydra.py",
    "python -m tests.support.fake_cuda": "tests/integration/test_fake_cuda.py",
    "CORPUS=text SRC=en TGT=de bash examples/quickstart.sh": "tests/test_quickstart.py",
    "python examples/quickstart/split.py": "tests/test_data_page.py",
    "python examples/quickstart/pieces.py": "tests/test_data_page.py",
    "fairseq-preprocess": "tests/test_data_page.py",
    "LC_ALL=C": "tests/test_data_page.py",
    "fairseq-reservoir sweep": "tests/examples/test_sweeps.py",
    "fairseq-reservoir report": "tests/studies/report/test_report.py",
    "tensorboard --logdir": "tests/trainer/test_watching.py",
    "bash benchmarks/gpu.sh": "tests/benchmarks/test_gpu.py",
    "bash benchmarks/gpu_wheels.sh": "benchmarks/gpu_wheels.sh, which needs a network",
}
# Pages that have their own test.
FOLLOWED = {"your-own-kind.md": "tests/test_own_kind.py", "adding-a-kind.md": "tests/test_adding_a_kind.py"}


def commands_of(text):
    """Commands in a page's blocks, one per line."""
    lines = "\n".join(BLOCK.findall(text)).replace("\\\n", " ")
    return [" ".join(line.split()) for line in lines.splitlines() if line.strip()]


def run_here(command):
    return not command.startswith(tuple(ELSEWHERE))


def _pages_with_commands():
    """Names of the pages. The longest pages are slow tests."""
    for name, text in PAGES.items():
        if name not in FOLLOWED and any(map(run_here, commands_of(text))):
            long = name in ("giving-a-model-away.md", "the-smallest-file.md")
            yield pytest.param(name, marks=[pytest.mark.slow] if long else [])


@pytest.mark.parametrize("page", _pages_with_commands())
def test_the_commands_of_a_page(page, request, tmp_path, monkeypatch, capfd):
    """All commands except those of ``ELSEWHERE``, in order, with three updates and on the CPU."""
    if "pieces/" in PAGES[page]:
        corpus = request.getfixturevalue("of_numbers")
        (tmp_path / "pieces").mkdir()
        (tmp_path / "pieces" / "joint.model").symlink_to(corpus.pieces)
        (tmp_path / "text.en").write_text("seventeen\n\none hundred and two\n")
        data = corpus.data
    else:
        data = request.getfixturevalue("toy_data")
    (tmp_path / "data-bin").symlink_to(data)
    for folder in ("fairseq_reservoir", "examples", "scripts"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    commands = list(filter(run_here, commands_of(PAGES[page])))
    if any("checkpoints/" in command for command in commands) and not any(
        "fairseq-train" in command for command in commands
    ):
        train(
            data,
            "--reservoir-encoder",
            "LT",
            "--max-epoch",
            2,
            "--batch-size",
            80,
            "--save-dir",
            tmp_path / "checkpoints",
        )
    monkeypatch.chdir(tmp_path)
    for command in commands:
        if "--ctranslate2" in command and not find_spec("ctranslate2"):
            continue
        run(re.sub(r"--max-update \d+", "--max-update 3 --no-epoch-checkpoints --num-workers 0", command), monkeypatch)
    said = "".join(capfd.readouterr())
    expected = {
        "README.md": [r"encoder.layers.1 +F feed-forward", r"Generate test with beam=5: BLEU4 = [\d.]+", r"\bH-7\b"],
        "giving-a-model-away.md": [
            "random tensors",
            "Generate test with beam=5",
            "plain.pt: ",
            "inference: weights in memory",
            "dictionaries and word pieces in it",
            "CTranslate2's model in int8",
        ],
        "one-random-layer.md": ["seen through 3 masks"],
        "the-smallest-file.md": [
            "This export stores 0 of 17 random tensors. Loading the export draws 17 from the seed.",
            "dictionaries and word pieces in it",
        ],
    }
    if "> text.de" in PAGES[page]:
        assert (tmp_path / "text.de").read_text().count("\n") == 3
    for pattern in expected.get(page, []):
        assert re.search(pattern, said), pattern


def run(command, monkeypatch):
    """Run a command in this process, which has already imported fairseq. Scripts and several ranks need new processes."""
    program, *words = shlex.split(command)
    if program == "fairseq-reservoir" and "<" not in words:
        cli.main(words)
    elif program.startswith("fairseq-") and "--distributed-world-size" in words:
        ended = run_command(program, *words)
        assert ended.returncode == 0, ended.stderr
    elif program.startswith("fairseq-") and "<" not in words:
        forget_earlier_runs()
        words = [str(ROOT / word) if word == "fairseq_reservoir" else word for word in words]
        short = ["--max-len-b", "10"] if program == "fairseq-generate" else []  # 200 words after three updates
        monkeypatch.setattr(sys, "argv", [program, *words, "--cpu", *short])
        import_module(f"fairseq_cli.{program.removeprefix('fairseq-').replace('-', '_')}").cli_main()
    else:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(["bash", "-euc", command], env=os.environ | {"PATH": programs}, check=True)


def test_commands_run_elsewhere_are_on_a_page_and_their_tests_exist():
    everything = TEXT.replace("\\\n", " ")
    assert all((ROOT / where).exists() for where in FOLLOWED.values())
    for command, where in ELSEWHERE.items():
        assert command in everything, f"{command}: on no page any more"
        assert (ROOT / where.split(",")[0]).exists(), where


def test_indented_commands_are_known():
    """Indented blocks are for commands that are tested elsewhere. Commands in ``sh`` blocks are run by the test above."""
    for block in INDENTED.findall("\n\n".join(text for name, text in PAGES.items() if name not in FOLLOWED)):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip().startswith(("fairseq", "bash", "python", "MINI", "pip")):
                assert not run_here(line.strip()), line


def test_the_printed_plan(capsys):
    printed = re.search(r"^```\n(slot .*?)^```", PAGES["README.md"], flags=re.DOTALL | re.MULTILINE)[1]
    (command,) = [command for command in commands_of(PAGES["README.md"]) if " plan " in command]
    cli.main(command.split()[1:])
    assert capsys.readouterr().out == printed
    (trained,) = [command for command in commands_of(PAGES["README.md"]) if command.startswith("fairseq-train ")]
    assert " ".join(command.split()[2:]) in trained, "the table shows another model than the command trains"


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"`(--(?:reservoir|freeze|encoder-layers)[^` ]* [^`A-Z]+[^`]*)`", TEXT)))
)
def test_flags_of_the_tables_are_accepted(command, capsys):
    if any(word in command for word in ("update", "schedule", "auto", "CHECKPOINT")):
        pytest.skip("a flag of the optimizer, or one that needs a checkpoint; tested below and in tests/integration")
    if command.startswith("--encoder-layers-to-keep"):
        command += " --encoder-layers 3"
    if command.startswith("--freeze-cache-"):
        command += " --freeze emb --freeze-cache memory"
    if command.startswith("--reservoir-type"):
        command += " --encoder-layers 7 --reservoir-count 2"
    cli.main(["plan", "--arch", "reservoir_transformer_tiny", *command.split()])
    assert "trained" in capsys.readouterr().out


@pytest.mark.parametrize("flags", sorted(set(re.findall(r"`(--optimizer freeze_skip [^`]+)`", TEXT))))
def test_flags_of_freeze_skip_are_accepted(flags):
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch", "reservoir_transformer_tiny", *shlex.split(flags)])
    names = [f"{stack}.layers.{i}.fc1.weight" for stack in ("encoder", "decoder") for i in range(3)]
    assert str(FreezeSchedule([*names, "encoder.embed_tokens.weight"], read(FreezeSkipOptions, args)))


def test_all_letters_and_presets_are_named():
    for letter in letters_where():
        assert f"`{letter}`" in PAGES["layers.md"]
    for preset in {**PRESETS, **MASKED_PRESETS, **LM_PRESETS, **MASKED_LM_PRESETS}:
        assert f"`{preset}`" in TEXT


def test_the_mask_flags_of_the_pages_exist():
    named = set(re.findall(r"--(mask-[a-z-]+[a-z])", TEXT))
    theirs = {"mask-init", "mask-constant", "mask-layernorm-type", "mask-regularization-type"}
    ours = {*MaskOptions.__dataclass_fields__, *RobertaVectorOptions.__dataclass_fields__}
    assert named - theirs <= {name.replace("_", "-") for name in ours}


def test_the_ten_per_cent_of_training_flops():
    """2 T of 6 in both stacks: a third of their FLOPs, compared with those of the whole model (IWSLT dictionaries)."""
    table = cli.plan(
        "reservoir_transformer_iwslt_de_en",
        ["--reservoir-encoder", "LTLTLL", "--reservoir-decoder", "LTLTLL", "--share-decoder-input-output-embed"],
        8848,
        6632,
    )
    frozen = sum(row.flops for row in table.rows if row.state == "frozen")
    assert 0.095 < frozen / 3 / sum(row.flops for row in table.rows) < 0.105


def test_the_front_page_is_short():
    assert len(PAGES["README.md"].split()) <= 900


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    folder = ROOT if (ROOT / page).exists() else ROOT / "docs"
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGES[page]):
        assert (folder / link).exists(), link
        assert folder == ROOT or not link.startswith("../"), f"{link}: the site holds docs/ alone"


def test_paths_on_the_pages_exist():
    followed = "\n".join(text for name, text in PAGES.items() if name not in FOLLOWED)
    for path in re.findall(r"`((?:examples|benchmarks|tests|scripts|fairseq_reservoir)/[\w./-]+)`", followed):
        assert (ROOT / path).exists(), path


@pytest.mark.skipif(not find_spec("mkdocs"), reason="mkdocs is not installed: extra `docs`")
def test_the_pages_are_built(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Args" not in (tmp_path / "site" / "index.html").read_text()
    assert "load_translator" in (tmp_path / "site" / "api" / "index.html").read_text()
