"""Tokenised BLEU of the recipes."""

import pytest

from examples.tokenised import main


def test_score_and_signature(tmp_path, capsys):
    """4 of 5 words, 3 of 4 pairs, 2 of 3 triples and 1 of 2 quadruples are right: 0.2 ** 0.25 = .6687."""
    log = tmp_path / "generate.log"
    log.write_text("T-0\tthe cat 's fur .\nH-0\t-0.5\tthe cat 's fur !\nD-0\t-0.5\tthe cat's fur!\n")
    main(log)
    said = capsys.readouterr().out
    assert said.startswith(
        "Tokenised BLEU, only comparable where the words are the same: 66.87, nrefs:1|case:mixed|eff:no|tok:none|smooth:none"
    )


def test_without_references(tmp_path):
    (tmp_path / "generate.log").write_text("H-0\t-0.5\tthe cat\n")
    with pytest.raises(SystemExit, match="does not hold both references"):
        main(tmp_path / "generate.log")
