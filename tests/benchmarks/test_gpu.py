"""benchmarks/gpu.sh: its commands, errors and page. Slow: a whole run on the CPU that is stopped and killed in between."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
import torch
from fairseq import options
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks import generation_time, gpu_epochs, gpu_peer, gpu_results, mask_selection, models, step_time
from tests.support import programs

ROOT = Path(gpu_results.__file__).parents[1]


def environment(folder, **more):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "OUT": str(folder / "out"), **more}


def gpu(folder, *arguments, **more):
    command = ["bash", "benchmarks/gpu.sh", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(folder, **more), capture_output=True, text=True)


def commands_of(dry_run, program):
    """Arguments of each command line that contains this program."""
    for line in dry_run.splitlines():
        words = shlex.split(line)
        if program in words:
            end = words.index("2>&1") if "2>&1" in words else len(words)
            yield words[words.index(program) + 1 : end]


def test_dry_run_prints_commands_that_are_understood(tmp_path):
    (tmp_path / "data").mkdir()
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            (tmp_path / "data" / f"{part}.{language}").touch()
    (tmp_path / "bin").mkdir()
    folders = {"DATA": str(tmp_path / "data"), "BIN": str(tmp_path / "bin")}
    ended = gpu(tmp_path, "--dry-run", "--minutes", "30", **folders, SEEDS="1 2")
    assert ended.returncode == 0 and not ended.stderr, ended.stderr
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.work").exists()

    timed = [step_time.read_arguments(words) for words in commands_of(ended.stdout, "benchmarks/step_time.py")]
    folders = [given.output.parent.name.removesuffix(".part") for given in timed]
    precisions = ("fp32", "fp16", "bf16")
    sizes = ("512-1024", "256-1024", "1024-4096")
    assert folders == [f"{size}-{precision}" for size in sizes for precision in precisions]
    assert all(given.device == "cuda" for given in timed)
    for given in timed[::4]:  # every size, every precision
        for _, flags in given.arm:
            words = shlex.split(f"{models.COMMON} {flags}")
            arm = options.parse_args_and_arch(options.get_training_parser(), words)
            assert arm.encoder_embed_dim == int(given.output.parent.name.split("-")[0])
            assert (arm.fp16, arm.bf16) == ("-fp16" in given.output.parent.name, "-bf16" in given.output.parent.name)

    (words,) = commands_of(ended.stdout, "benchmarks/gpu_epochs.py")
    given = gpu_epochs.read_arguments(words)
    assert (given.device, given.data, given.settings) == ("cuda", tmp_path / "bin", gpu_epochs.SETTINGS)
    (words,) = commands_of(ended.stdout, "benchmarks/gpu_peer.py")
    assert gpu_peer.read_arguments(words).tokens == [4096, 32768]
    (words,) = commands_of(ended.stdout, "benchmarks/generation_time.py")
    assert generation_time.read_arguments(words).promise is None
    (words,) = commands_of(ended.stdout, "benchmarks/mask_selection.py")
    assert mask_selection.read_arguments(words).matrices == 30
    trained = [words for words in commands_of(ended.stdout, "fairseq-train")]
    assert len(trained) == 6
    for words in trained[:3]:
        flags = options.parse_args_and_arch(options.get_training_parser(), words)
        assert (flags.encoder_embed_dim, flags.max_update, flags.seed) == (256, 8000, 1)


def test_the_corpus_of_the_epochs(tmp_path):
    """Raw text is binarised once, for the epochs and for the house benchmark. Without it only random tokens are trained on."""
    (tmp_path / "data").mkdir()
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            (tmp_path / "data" / f"{part}.{language}").touch()
    without = str(tmp_path / "none")
    ended = gpu(tmp_path, "--dry-run", DATA=str(tmp_path / "data"), BIN=without, SEEDS="1")
    (words,) = commands_of(ended.stdout, "benchmarks/gpu_epochs.py")
    corpus = words[words.index("--data") + 1]
    made = [words[words.index("--destdir") + 1] for words in commands_of(ended.stdout, "fairseq-preprocess")]
    assert corpus == f"{tmp_path}/out.work/house/bin" and set(made) == {f"{corpus}.part"}
    assert {words[0] for words in commands_of(ended.stdout, "fairseq-train")} == {corpus}

    ended = gpu(tmp_path, "--dry-run", DATA=without, BIN=without)
    (words,) = commands_of(ended.stdout, "benchmarks/gpu_epochs.py")
    assert "--data" not in words and list(gpu_epochs.read_arguments(words).settings) == ["1024/4096"]


def test_a_step_that_failed_comes_after_all_others_when_run_again(tmp_path):
    """Otherwise a failing step would use the minutes of steps that have not run yet."""

    def order():
        ended = gpu(tmp_path, "--dry-run", DATA=str(tmp_path / "none"), BIN=str(tmp_path / "none"))
        return [line.removeprefix("# ") for line in ended.stdout.splitlines() if line.startswith("# ")]

    at_first = order()
    assert at_first[0] == "tests" and len(at_first) == 14
    (tmp_path / "out").mkdir()
    steps = "tests\tnot begun\nmasks\tfailed, exit status 1: x\nmasks\tdone\ntests\tnot finished\ntests\tfailed, exit status 1: y\n"
    (tmp_path / "out" / "steps").write_text(steps)
    assert order() == [*at_first[1:], "tests"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--device", "tpu"], "--device tpu: cuda or cpu"),
        (["--minutes", "0"], "--minutes 0: a whole number, 1 or more"),
        (["--minutes"], "--minutes: needs a value"),
        (["--fast"], "--fast: unknown; "),
    ],
)
def test_wrong_arguments_are_named(arguments, message, tmp_path):
    ended = gpu(tmp_path, *arguments)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1) and f"gpu: {message}" in ended.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_cuda_it_ends_with_a_message(tmp_path):
    warm = programs.environment()["BASH_FUNC_python%%"]
    ended = gpu(tmp_path, **{"BASH_FUNC_python3%%": warm})
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1
    assert "gpu: --device cuda: torch" in ended.stderr and "finds no CUDA device" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_module_is_named_in_one_line(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    path = os.pathsep.join([str(tmp_path / "bare" / "bin"), os.environ["PATH"]])
    ended = gpu(tmp_path, PATH=path, PYTHONPATH="", WHEELS=str(tmp_path))
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1
    assert "gpu: ModuleNotFoundError: No module named 'torch'" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_the_wheels_need_nothing_that_is_neither_collected_nor_there():
    """For the packages installed here, in their installed versions."""
    script = (ROOT / "benchmarks" / "gpu_wheels.sh").read_text()
    words = shlex.split(script.replace("\\\n", " "), comments=True)
    given = words[words.index("fairseq-fixed==0.12.3.1") :]
    collected = {canonicalize_name(Requirement(word).name) for word in given if word[0].isalpha()}
    there = {"torch", "numpy", "scipy", "scikit-learn", "sentencepiece"}
    of_speech = {"torchaudio"}
    needed = {}
    for name in collected & {canonicalize_name(d.name) for d in metadata.distributions()}:
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": "", "python_version": "3.12"}):
                needed[canonicalize_name(requirement.name)] = name
    assert {"sacrebleu", "joblib", "antlr4-python3-runtime"} <= collected and len(needed) > 10
    assert not {name: of for name, of in needed.items() if name not in collected | there | of_speech}


def test_figures_of_another_commit_are_not_mixed_in(tmp_path):
    gpu_results.begin(tmp_path, "cpu")
    gpu_results.begin(tmp_path, "cpu")
    facts = json.loads((tmp_path / "device.json").read_text())
    (tmp_path / "device.json").write_text(json.dumps(facts | {"commit": "abc"}))
    with pytest.raises(SystemExit, match="has results of commit abc, not .*; choose another folder"):
        gpu_results.begin(tmp_path, "cpu")


def test_the_page(tmp_path):
    (tmp_path / "device.json").write_text(json.dumps({"device": "H100", "commit": "abc", "driver": None}))
    (tmp_path / "steps").write_text("tests\tnot begun\nmasks\tnot begun\ntests\tnot finished\ntests\tdone\n")
    (tmp_path / "tests.txt").write_text("....\n4 passed\n")
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "table.md").write_text("| arm |\n|---|\n| sort |\n")
    for arm, seed, score in (("dense", 1, 30.0), ("dense", 2, 32.0), ("supermask", 1, 29.0)):
        (tmp_path / "house" / f"{arm}-{seed}").mkdir(parents=True)
        (tmp_path / "house" / f"{arm}-{seed}" / "bleu.json").write_text(json.dumps({"score": score}))
    gpu_results.page(tmp_path)
    page = (tmp_path / "results.md").read_text()
    assert page.startswith(
        "# H100\n\n- commit: abc\n\n| step | |\n|---|---|\n| tests | done |\n| masks | not begun |\n"
    )
    assert "    4 passed\n" in page and "\n## masks\n\n| arm |\n|---|\n| sort |\n" in page
    # 30 and 32 differ from their mean by 1: sqrt((1 + 1) / (2 - 1)) = 1.41.
    assert "| dense | 31.00 | 1.41 | 1: 30.00, 2: 32.00 |\n| supermask | 29.00 | one seed | 1: 29.00 |\n" in page


@pytest.mark.slow
def test_to_the_end_on_the_cpu_after_a_stop_and_a_kill(tmp_path):
    arguments = ["bash", "benchmarks/gpu.sh", "--device", "cpu", "--tiny"]
    out = tmp_path / "out"

    def until(file, sent):
        """Run it until the file exists, then send a signal to all its processes. Return its exit status."""
        with open(tmp_path / "log", "a") as log:
            process = subprocess.Popen(
                arguments, cwd=ROOT, env=environment(tmp_path), stdout=log, stderr=log, start_new_session=True
            )
        while not file.exists() and process.poll() is None:
            time.sleep(0.2)
        os.killpg(process.pid, sent)
        return process.wait()

    # --minutes sends this signal at the end of the time.
    assert until(out / "tests.txt", signal.SIGTERM) == 0
    page = (out / "results.md").read_text()
    assert "| tests | done |" in page and "| masks | not begun |" in page
    assert until(out / "8-16-fp32" / "table.md", signal.SIGKILL) == -signal.SIGKILL
    tested = (out / "tests.txt").stat().st_mtime_ns

    ended = subprocess.run(arguments, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert (out / "tests.txt").stat().st_mtime_ns == tested and "8-16-fp32 is there: kept" in ended.stdout
    page = (out / "results.md").read_text()
    assert "not begun" not in page and "not finished" not in page and "failed" not in page.split("## Tests")[0]
    for part in (
        "## 8-16-fp32",
        "## 8-16-bf16",
        "## epochs",
        "## peer",
        "## generation",
        "## masks",
        "## house",
        "| supermask | ",
    ):
        assert part in page
    for table in ("epochs", "peer"):
        assert all(arm["failed"] is None for arm in json.loads((out / table / "table.json").read_text())["arms"])
    for table in ("8-16-fp32", "8-16-bf16", "generation", "masks"):
        assert all("absent" not in arm for arm in json.loads((out / table / "table.json").read_text())["arms"])
    assert not list(out.rglob("*.part")) and not list(out.rglob("*.pt"))
