"""Test scores in a run's folder."""

import json

import pytest
from sacrebleu.metrics import BLEU

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report.runs import find_runs
from fairseq_reservoir.studies.report.translations import (
    by_line_number,
    read_references,
    read_sentences,
    read_test,
    tokenised_bleu,
)
from tests.support.logs import generated, plain_run
from tests.support.runs_of_a_study import REFERENCES, translations


@pytest.fixture
def run(tmp_path):
    plain_run(tmp_path / "a-1", [10], [4]).write()
    return find_runs([tmp_path])[0]


def expected(hypotheses, references=REFERENCES):
    return BLEU().corpus_score(hypotheses, [references]).score


def test_lines_by_number_and_the_best_hypothesis():
    text = "T-1\tdas ist\nD-1\t-0.1\tbest\nD-1\t-0.9\tworse\nD-0\t-0.3\t\nH-0\t-0.3\ta b\nepoch\nT-0\tb\n"
    assert read_sentences(text) == {"T": {1: "das ist", 0: "b"}, "D": {1: "best", 0: ""}, "H": {0: "a b"}}


def test_a_very_long_number_is_not_a_sentence():
    assert read_sentences(f"H-{'9' * 5000}\t-0.1\ta\nT-0\tb\n") == {"T": {0: "b"}}


def test_sentences_in_order():
    assert by_line_number({1: "b", 0: "a"}) == ["a", "b"]
    assert by_line_number({}) is by_line_number({0: "a", 2: "c"}) is by_line_number({1: "b"}) is None


def test_from_d_and_t_lines(run):
    generated(run.folder, REFERENCES, translations(12))
    test = read_test(run.folder, None)
    assert (test.bleu, test.remarks) == (pytest.approx(expected(translations(12))), [])
    assert test.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a")


def test_tokenised_bleu_by_hand():
    """4 of 5 tokens match, 3 of 4 pairs, 2 of 3 triples, 1 of 2 groups of four: (4/5 3/4 2/3 1/2) ** (1/4) = 0.2 ** 0.25 = .6687."""
    score, signature = tokenised_bleu({"T": {0: "the cat 's fur ."}, "H": {0: "the cat 's fur !"}})
    assert score == pytest.approx(66.87, abs=0.005) and "tok:none|smooth:none" in signature
    assert tokenised_bleu({"T": {0: "a"}, "H": {}}) is tokenised_bleu({"T": {0: "a"}, "H": {1: "a"}}) is None


def test_detokenised_translations_are_not_compared_with_tokenised_references(run):
    """fairseq-generate --tokenizer detokenises D-lines, but not T-lines."""
    words = [line.replace(".", " .") for line in REFERENCES]
    generated(run.folder, words, REFERENCES, words=words)
    test = read_test(run.folder, None)
    assert (test.bleu, test.tokenised) == (None, pytest.approx(100))
    assert "name a file of raw references with --references" in test.remarks[0]
    assert read_test(run.folder, REFERENCES).bleu == pytest.approx(100)


def test_from_results_path_and_from_a_file_of_hypotheses(run):
    generated(run.folder / "translation", REFERENCES, translations(7))
    (run.folder / "translation" / "generate.log").rename(run.folder / "translation" / "generate-test.txt")
    assert read_test(run.folder, None).bleu == pytest.approx(expected(translations(7)))
    (run.folder / "translation" / "generate-test.txt").unlink()
    (run.folder / "hypotheses").write_text("\n".join(translations(9)) + "\n")
    assert read_test(run.folder, None).bleu is None
    assert "with --references" in read_test(run.folder, None).remarks[0]
    assert read_test(run.folder, REFERENCES).bleu == pytest.approx(expected(translations(9)))


def test_an_incomplete_translation_has_no_score(run):
    generated(run.folder, REFERENCES, translations(12))
    log = run.folder / "generate.log"
    whole = log.read_text()
    for third in (whole[: len(whole) // 3], whole[: whole.index("Generate test with")], whole[: whole.index("D-")]):
        log.write_text(third)
        test = read_test(run.folder, REFERENCES)
        assert (test.bleu, test.tokenised, test.counts.by) == (None, None, {})
        (remark,) = test.remarks
        assert remark.startswith("no test score, because the translation is not finished: ")
    log.write_text("".join(line for line in whole.splitlines(True) if line[1:5] != "-13\t"))
    assert read_test(run.folder, None).remarks == [
        "no test score, because the translation is not finished: generate.log lacks 1 of its sentences"
    ]
    # Without references fairseq prints no last line of scores.
    log.write_text("".join(line for line in whole.splitlines(True) if line[:2] in ("S-", "H-", "D-", "P-")))
    assert read_test(run.folder, REFERENCES).bleu == pytest.approx(expected(translations(12)))


def test_generate_log_takes_precedence_and_the_others_are_named(run):
    generated(run.folder, REFERENCES, translations(7))
    (run.folder / "generate.log").rename(run.folder / "generate-2.log")
    generated(run.folder, REFERENCES, translations(12))
    test = read_test(run.folder, None)
    assert test.bleu == pytest.approx(expected(translations(12)))
    assert test.remarks == ["the test scores are computed from generate.log; this report does not use generate-2.log"]
    (run.folder / "generate.log").write_text("WARNING | with --results-path it holds no sentence\n")
    assert (read_test(run.folder, None).bleu, read_test(run.folder, None).remarks) == (
        pytest.approx(expected(translations(7))),
        [],
    )


@pytest.mark.parametrize("piece", ["▁{}", "{}@@ s"])
def test_scores_of_subwords_are_named(run, piece):
    generated(
        run.folder, [piece.format(line) for line in REFERENCES], [piece.format(line) for line in translations(12)]
    )
    (remark,) = read_test(run.folder, None).remarks
    assert remark.startswith(
        "the translations or references contain subwords, so the scores are computed on subwords; if subwords are"
    )


def test_other_references(run, tmp_path):
    generated(run.folder, ["<<unk>> " + line for line in REFERENCES], translations(12))
    assert read_test(run.folder, None).remarks == [
        "20 references contain <<unk>> in place of words outside the dictionary; give --references FILE, "
        "where FILE has the original references"
    ]
    (run.folder / "references").write_text("\n".join(REFERENCES) + "\n")
    assert read_test(run.folder, None).bleu == pytest.approx(expected(translations(12)))
    assert read_test(run.folder, None).counts.referred == "the file references beside the translations"
    (run.folder / "references").rename(tmp_path / "test.de")
    assert read_test(run.folder, read_references(tmp_path / "test.de")).bleu == pytest.approx(
        expected(translations(12))
    )
    assert read_test(run.folder, REFERENCES[:-1]).bleu is None
    with pytest.raises(InputError, match="--references .*nowhere: cannot be read as text"):
        read_references(tmp_path / "nowhere")
    (tmp_path / "blank").write_text("\ufeff\n \n")
    with pytest.raises(InputError, match="--references .*blank: has no text"):
        read_references(tmp_path / "blank")


def test_another_bleu_in_the_folder_is_named(run):
    generated(run.folder, REFERENCES, translations(12))
    (run.folder / "bleu.json").write_text(json.dumps({"score": 12.34}))
    assert read_test(run.folder, None).remarks == [
        "bleu.json in the same folder has a different score, 12.34, perhaps computed with different references"
    ]
    (run.folder / "bleu.json").write_text(json.dumps({"score": round(expected(translations(12)), 2)}))
    assert read_test(run.folder, None).remarks == []


def test_translations_of_the_validation_set_do_not_count(run):
    def of(subset, name, quality):
        generated(run.folder, REFERENCES, translations(quality))
        text = (run.folder / "generate.log").read_text().replace("Generate test", f"Generate {subset}")
        (run.folder / "generate.log").unlink()
        (run.folder / name).write_text(text)

    of("valid", "generate.log", 12)
    test = read_test(run.folder, None)
    assert (test.bleu, test.remarks) == (None, ["no test score: generate.log translates the subset valid"])
    of("valid1", "generate-2.log", 12)
    of("test1", "generate-3.log", 7)
    test = read_test(run.folder, None)
    assert (test.bleu, test.remarks) == (pytest.approx(expected(translations(7))), [])
    (run.folder / "generate-3.log").unlink()
    (run.folder / "generate.log").write_text("WARNING | with --results-path it holds no sentence\n")
    of("valid", "generate-valid.txt", 12)
    assert read_test(run.folder, None).bleu is None
    (run.folder / "hypotheses").write_text("\n".join(translations(9)) + "\n")
    test = read_test(run.folder, REFERENCES)
    assert (test.bleu, test.remarks) == (pytest.approx(expected(translations(9))), [])


def test_the_subset_from_the_name_of_the_file(run):
    """Without references fairseq's last line, which has the subset, is missing."""
    generated(run.folder, REFERENCES, translations(12))
    log = run.folder / "generate.log"
    text = "".join(line for line in log.read_text().splitlines(True) if line[:2] in ("S-", "H-", "D-", "P-"))
    log.unlink()
    (run.folder / "generate-valid.log").write_text(text)
    assert read_test(run.folder, REFERENCES).remarks == [
        "no test score: generate-valid.log translates the subset valid"
    ]
    (run.folder / "generate-2.log").write_text(text)
    assert read_test(run.folder, REFERENCES).bleu == pytest.approx(expected(translations(12)))


@pytest.mark.parametrize("name", ["test.log", "eval-lm.log"])  # names in a recipe and in a sweep
def test_loss_of_a_language_model(run, name):
    (run.folder / name).write_text("INFO:fairseq_cli.eval_lm:Loss (base 2): 3.2811, Perplexity: 9.72\n")
    assert read_test(run.folder, None).bits == 3.2811


def test_a_loss_of_the_validation_text_does_not_count(run):
    """fairseq prints the folder, the subset, the number of blocks and the loss."""
    for name, subset, bits in (
        ("eval-lm.log", "valid", 1.5),
        ("eval-lm-2.log", "test", 2.5),
        ("eval-lm-3.log", "test1", 3.5),
    ):
        (run.folder / name).write_text(
            "INFO:fairseq.data.data_utils:loaded 8,052 examples from: bin/test\n"
            f"INFO:fairseq_cli.eval_lm:a folder/bin {subset} 5,149 examples\n"
            f"INFO:fairseq_cli.eval_lm:Loss (base 2): {bits}, Perplexity: 1\n"
        )
    test = read_test(run.folder, None)
    assert (test.bits, test.remarks) == (
        2.5,
        [
            "no test loss: eval-lm.log evaluates the subset valid",
            "the test loss is read from eval-lm-2.log; this report does not use the loss in eval-lm-3.log",
        ],
    )


ALL = "INFO:fairseq_cli.eval_lm:{'_name': None, 'task': {'shorten_method': 'none'}, 'dataset': {'num_shards': 1}}\n"
LOSS = "INFO:fairseq_cli.eval_lm:Evaluated 5,149 tokens in 1.0s (5149.00 tokens/s)\nLoss (base 2): 2.5000, Perplexity: 5.66\n"
SKIPS = "WARNING:fairseq.tasks.fairseq_task:1,205 samples have invalid sizes and will be skipped, max_positions=256\n"


@pytest.mark.parametrize(
    "log, part",
    [
        (ALL + SKIPS + LOSS.replace("5,149 tokens in", "0 tokens in").replace("2.5", "0.0"), "0 tokens"),
        (ALL + SKIPS + LOSS, "a part of the text, because 1,205 blocks were too long for the model"),
        (ALL.replace("'num_shards': 1", "'num_shards': 12") + LOSS, "one of 12 shards of the text"),
        (ALL.replace("'none'", "'truncate'") + LOSS, "shortened lines (--shorten-method truncate)"),
    ],
)
def test_a_loss_of_a_part_of_the_text_does_not_count(run, log, part):
    (run.folder / "eval-lm.log").write_text(log)
    test = read_test(run.folder, None)
    assert (test.bits, test.remarks) == (None, [f"no test loss: eval-lm.log evaluates only {part}"])
    # A second attempt with the whole text counts.
    (run.folder / "eval-lm.log").write_text(log + ALL + LOSS)
    assert (read_test(run.folder, None).bits, read_test(run.folder, None).remarks) == (2.5, [])


def test_translations_without_the_longest_sentence_have_no_score(run):
    """The last sentence may be missing, so that the other numbers have no gap."""
    log = generated(run.folder, REFERENCES, translations(12)) or run.folder / "generate.log"
    log.write_text(SKIPS.replace("1,205", "1") + log.read_text())
    test = read_test(run.folder, None)
    said = "no test score: generate.log lacks 1 sentences that were too long for the model"
    assert (test.bleu, test.remarks) == (None, [said])
