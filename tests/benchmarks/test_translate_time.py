"""benchmarks/translate_time.py with a tiny model: both commands give the same translations."""

import json

import pytest

from benchmarks import translate_time


def test_output_of_the_commands():
    printed = "S-1\tb\nH-1\t-0.5\tx\nD-1\t-0.5\tein Satz\nD-0\t-1\t\nGenerate test\n"
    assert translate_time.read_generate(printed) == ["", "ein Satz"]
    assert translate_time.read_translate("a\n\nb\n") == ["a", "", "b"]


def test_files_that_are_not_there(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        translate_time.read_arguments([str(tmp_path / "no"), str(tmp_path), str(tmp_path)])
    assert "no: does not exist" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run(with_text, of_numbers, tmp_path):
    words = [with_text, of_numbers.data, of_numbers.raw / "test_2016_flickr.en", "--output", tmp_path / "times"]
    flags = "--remove-bpe sentencepiece --pairs 2 --warm-up 0 --threads 1 --at-most 1000".split()
    result = translate_time.main([*map(str, words), *flags])
    assert result["promise"]["holds"] and result["surroundings"]["different"] == 0
    assert result["surroundings"]["lines"] == 40
    assert json.loads((tmp_path / "times.json").read_text())["arms"][1]["arm"] == "fairseq-reservoir translate"
