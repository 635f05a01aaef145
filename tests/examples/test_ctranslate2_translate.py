"""A CTranslate2 model translates text like our own translator with the same model in fp32."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import load_translator

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install ctranslate2")
SCRIPT = Path(__file__).parents[2] / "examples" / "ctranslate2_translate.py"
TEXT = ["seventeen", "one hundred and two", "forty three"]


def test_translations(with_text, of_numbers, tmp_path):
    cli.main(["materialize", str(with_text), "--ctranslate2", str(tmp_path / "ct2")])
    words = [sys.executable, SCRIPT, tmp_path / "ct2", of_numbers.pieces]
    ended = subprocess.run(
        words, input="".join(f"{line}\n" for line in TEXT), capture_output=True, text=True, check=True
    )
    # A carriage return does not end a line.
    odd = subprocess.run(words, input=b"one hundred\rand two\r\nseventeen\n", capture_output=True, check=True)
    assert odd.stdout.decode().split("\n") == [
        *load_translator(str(with_text)).translate(["one hundred and two", TEXT[0]]),
        "",
    ]
    assert ended.stdout.splitlines() == load_translator(str(with_text)).translate(TEXT)


def test_usage():
    ended = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert ended.returncode == 1 and "Usage: ctranslate2_translate.py FOLDER PIECES.model" in ended.stderr
