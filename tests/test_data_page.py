"""docs/data.md: its commands turn a folder of text into data, with which a model is trained."""

import subprocess
from pathlib import Path

from tests.support import programs
from tests.support.commands import train
from tests.support.scripts import run_script
from tests.test_pages import BLOCK, PAGES

ROOT = Path(__file__).parent.parent


def test_lines_that_fairseq_preprocess_would_cut(tmp_path):
    """The page's first command prints these lines and the second repairs them. fairseq then has the same number of lines as the file."""
    (tmp_path / "text").mkdir()
    for name, content in (("train.en", b"one\ntwo\r\nthree\rfour\nfive\r\r\n\xff\r\xfe\n"), ("train.de", b"a\r\nb\n")):
        (tmp_path / "text" / name).write_bytes(content)
    find, mend = [block for block in BLOCK.findall(PAGES["data.md"]) if block.startswith("LC_ALL=C")]

    def run(command):
        return subprocess.run(["bash", "-uc", command], cwd=tmp_path, capture_output=True)

    found = run(find)
    assert found.stdout == (b"text/train.en:3:three\rfour\ntext/train.en:4:five\r\r\ntext/train.en:5:\xff\r\xfe\n")
    assert run(mend).returncode == 0 and run(find).stdout == b""
    assert (tmp_path / "text" / "train.en").read_bytes() == b"one\ntwo\nthree four\nfive\n\xff \xfe\n"
    assert (tmp_path / "text" / "train.de").read_bytes() == b"a\nb\n"


def test_text_of_ones_own(tmp_path):
    numbers = (
        "one two three four five six seven eight nine ten".split(),
        "eins zwei drei vier fünf sechs sieben acht neun zehn".split(),
    )
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for language, words in zip(("en", "de"), numbers):
        lines = [f"{words[n % 10]} {words[n // 10 % 10]} {words[n // 100]}\n" for n in range(600)]
        (tmp_path / f"text.{language}").write_text("".join(lines), encoding="utf-8")
    (commands,) = [block for block in BLOCK.findall(PAGES["data.md"]) if "pieces.py" in block]
    assert "split.py" in commands and "fairseq-preprocess" in commands
    subprocess.run(["bash", "-euc", commands], cwd=tmp_path, env=programs.environment(), check=True)
    assert (tmp_path / "pieces" / "joint.model").is_file()
    trained = train(
        tmp_path / "data-bin", "--max-update", 2, "--batch-size", 20, "--save-dir", tmp_path / "checkpoints"
    )
    assert trained.trainer.get_num_updates() == 2


def test_pieces_without_text_are_refused_in_one_line(tmp_path):
    """SentencePiece would end in an internal error. The first file is empty, the second is missing."""
    (tmp_path / "train.en").touch()
    command = [ROOT / "examples/quickstart/pieces.py", tmp_path, "en", "de", "100", tmp_path / "out"]
    ended = run_script(*command)
    assert (ended.returncode, ended.stderr) == (1, f"pieces: {tmp_path}/train.en: is empty\n")
    (tmp_path / "train.en").write_text("a line\n")
    assert run_script(*command).stderr == f"pieces: {tmp_path}/train.de: no such file\n"
