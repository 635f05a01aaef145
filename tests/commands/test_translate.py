"""``fairseq-reservoir translate`` prints one line for each line of its input. An error is one line too."""

import io
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fairseq_reservoir import checkpoint, cli
from fairseq_reservoir.checkpoint import load_translator
from fairseq_reservoir.commands import translate as command
from fairseq_reservoir.commands.translate import read_lines
from fairseq_reservoir.options.command_options import GENERATION_GRAPHS, ON_CPU

SHORT = ["--max-len-b", "20"]


@pytest.fixture
def run(with_text, monkeypatch, capfdbinary):
    """Return a function that passes bytes to the command. It returns the lines of standard output and the text of standard error."""

    def translate(text, *flags, model=with_text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        cli.main(["translate", str(model), *SHORT, *map(str, flags)])
        sys.stdout.flush()
        out, stderr = capfdbinary.readouterr()
        assert out == b"" or out.endswith(b"\n")
        return out.decode().split("\n")[:-1], stderr.decode()

    return translate


@pytest.fixture(scope="module")
def expected(with_text):
    lines = ["one hundred and two", "seventeen", "ninety-nine thousand"]
    return lines, load_translator(with_text).translate(lines, max_len_b=20)


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_closed_input_or_output(closed, tmp_path):
    command = f'exec "$0" -m fairseq_reservoir_cli translate {tmp_path}/none.safetensors {closed}'
    finished = subprocess.run(["bash", "-c", command, sys.executable], stderr=subprocess.PIPE, text=True)
    assert finished.returncode != 0 and finished.stderr.count("\n") == 1
    assert "standard input and output: must be open" in finished.stderr


def test_without_standard_error_nothing_is_added(with_text, tmp_path):
    (tmp_path / "in").write_text("one\none two three. one two three.\n")
    command = f'exec "$0" -m fairseq_reservoir_cli translate {with_text} --split-above 4 --max-len-b 3 --beam 1 < {tmp_path}/in 2>&-'
    finished = subprocess.run(["bash", "-c", command, sys.executable], stdout=subprocess.PIPE, text=True)
    assert (
        finished.returncode == 0 and finished.stdout.count("\n") == 2 and "translated in parts" not in finished.stdout
    )


def test_one_line_for_each_line(run, expected):
    lines, translated = expected
    found, stderr = run("\n".join(lines).encode())
    assert found == translated and len(set(found)) > 1
    assert stderr == ""


def test_blank_lines_line_ends_and_a_byte_order_mark(run, expected):
    (first, second, third), (one, two, three) = expected
    text = f"\ufeff{first}\r\n\r\n  {second}\t\n\n\n{third}\u2028\n \r\n"
    assert run(text.encode())[0] == [one, "", two, "", "", three, ""]


def test_empty_input_and_a_blank_line(run):
    assert run(b"")[0] == [] and run(b"\n")[0] == [""]


@pytest.mark.parametrize("flags", [["--buffer-size", 1], ["--buffer-size", 2, "--batch-size", 1], ["--batch-size", 2]])
def test_sizes_of_buffer_and_batch_do_not_matter(run, expected, flags):
    lines, translated = expected
    assert run("\n".join(lines * 2).encode(), *flags)[0] == translated * 2


def test_scores_and_numbers(run, expected):
    lines, translated = expected
    found, _ = run(f"{lines[0]}\n\n{lines[1]}\n".encode(), "--nbest", 2, "--scores", "--buffer-size", 1)
    rows = [line.split("\t") for line in found]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert rows[0][2] == translated[0] and rows[3][2] == translated[1] and rows[2][1:] == ["0.0000", ""]
    assert 0 > float(rows[0][1]) >= float(rows[1][1])
    (with_score,), _ = run(lines[0].encode(), "--scores")
    assert with_score.split("\t") == rows[0][1:]


def test_split_and_truncated_lines_are_reported(run):
    found, stderr = run(b"one\n" + b"one two three. " * 5 + b"\n" + b"one " * 40, "--split-above", 30, "--max-len-b", 2)
    assert len(found) == 3
    assert "translated in parts, because these lines have more than 30 pieces (--split-above): line 2, 3\n" in stderr
    assert "cut short at 2 pieces (--max-len-b): line 1, 2, 3\n" in stderr
    assert command._named(range(1, 9)) == "line 1, 2, 3, 4, 5 and 3 more"


def test_a_limit_of_the_model_is_reported_as_such():
    assert command._limit(200, "--max-len-b", 1023) == "200 pieces (--max-len-b)"
    assert command._limit(200, "--max-len-b", 7) == "7 pieces, the model's maximum length"


def test_parts_are_not_counted_as_lines(run, monkeypatch):
    monkeypatch.setattr(command, "_SECONDS_BETWEEN_NOTES", 0)
    _, stderr = run(b"one two three. one two three. " * 3 + b"\none\n", "--split-above", 4, "--batch-size", 2)
    notes = [line.split(": ")[1].split(" ")[0] for line in stderr.splitlines() if " lines in " in line]
    assert notes == ["1", "2"]


def test_progress_is_reported_every_few_seconds(run, expected, monkeypatch):
    monkeypatch.setattr(command, "_SECONDS_BETWEEN_NOTES", 0)
    _, stderr = run("\n".join([*expected[0], ""]).encode(), "--batch-size", 2)
    notes = [line.split(" in ")[0] for line in stderr.splitlines()]
    assert notes == [f"fairseq-reservoir translate: {n} lines" for n in (2, 3)]


def test_input_that_is_not_utf_8(run):
    with pytest.raises(SystemExit, match="error: standard input is not UTF-8: byte 0xff in line 2$"):
        run(b"one\ntw\xff\n")


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--beam", 0], "--beam 0: must be from 1 to 10000"),
        (["--nbest", 0], "--nbest 0: must be"),
        (["--nbest", 6], "--nbest 6: must be from 1 to --beam, 5"),
        (["--lenpen", "nan"], "--lenpen nan: must be from -10 to 10"),
        (["--lenpen", "1e400"], "--lenpen inf: must be from -10 to 10"),
        (["--batch-size", -1], "--batch-size -1: must be"),
    ],
)
def test_numbers_out_of_range(run, flags, message):
    with pytest.raises(SystemExit, match=message):
        run(b"one", *flags)


def test_models_that_cannot_translate(run, of_numbers, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    for model, message in (
        (tmp_path / "no.safetensors", f"MODEL {tmp_path}/no.safetensors: no such file"),
        (tmp_path, f"MODEL {tmp_path}: is a folder; name a file in it"),
        (tmp_path / "a.safetensors", "a.safetensors: truncated, altered or not a safetensors file"),
        (of_numbers.path, r"is not an export, because the name does not end in .safetensors"),
    ):
        with pytest.raises(SystemExit, match=message) as refusal:
            run(b"one", model=model)
        assert "\n" not in str(refusal.value)


def test_lines_are_yielded_as_they_arrive():
    read, write = os.pipe()
    with open(read, "rb") as stream:
        lines = read_lines(stream, 1)
        os.write(write, b"a\n")
        assert next(lines) == (1, ["a"])
        os.write(write, b"b")
        os.close(write)
        assert list(lines) == [(2, ["b"])]


def test_a_folder_with_only_the_model_and_a_closed_pipe(with_text, tmp_path):
    """The command runs in a folder with only the model, in a locale without Unicode. ``head`` closes the pipe after one line."""
    program = Path(sys.executable).parent / "fairseq-reservoir"
    (tmp_path / "model.safetensors").write_bytes(with_text.read_bytes())
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "LC_ALL": "C",
        "OMP_NUM_THREADS": "1",
    }
    script = f"yes five | head -n 40 | {program} translate model.safetensors --buffer-size 1 --max-len-b 20 | head -n 1"
    finished = subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0 and finished.stdout.count("\n") == 1, finished.stderr
    assert "Traceback" not in finished.stderr and "Error" not in finished.stderr


def test_cuda_graphs(run, expected, monkeypatch):
    """On a CPU the flag changes nothing. With the value of the tests, the captured steps find the same translations."""
    lines, translated = expected
    monkeypatch.setenv(GENERATION_GRAPHS, "")
    monkeypatch.delenv(GENERATION_GRAPHS)
    assert run("\n".join(lines).encode(), "--cuda-graphs")[0] == translated
    assert os.environ.pop(GENERATION_GRAPHS) == "1"
    monkeypatch.setenv(GENERATION_GRAPHS, ON_CPU)
    assert run("\n".join(lines).encode(), "--scores", "--nbest", 2, "--batch-size", 2)[0]
    assert run("\n".join(lines).encode())[0] == translated


def test_random_tensors_are_not_stored(run, expected, monkeypatch):
    lines, translated = expected
    opened = []
    original = checkpoint.load_translator
    monkeypatch.setattr(
        checkpoint, "load_translator", lambda *args, **options: opened.append(options) or original(*args, **options)
    )
    assert run("\n".join(lines).encode(), "--regenerate-weights")[0] == translated
    assert opened == [{"regenerate_weights": True}]
    if find_spec("ctranslate2"):
        with pytest.raises(SystemExit, match="--regenerate-weights: works only with --engine torch"):
            run(b"", "--engine", "ctranslate2", "--regenerate-weights")
