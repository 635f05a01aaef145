"""N-gram counts give the scores of the translations, and can be written to a file and read again."""

import json

import pytest
from sacrebleu.metrics import BLEU, CHRF

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report import counts
from fairseq_reservoir.studies.report.arms import group
from fairseq_reservoir.studies.report.bootstrap import paired_bootstrap, remark_other_test_sets
from fairseq_reservoir.studies.report.runs import find_runs
from fairseq_reservoir.studies.report.translations import read_test
from tests.support.logs import generated, plain_run
from tests.support.runs_of_a_study import REFERENCES, translations


def test_rows_of_one_sentence():
    """5 of 6 words match (all but the second "the"), 3 of 5 pairs, 2 of 4 triples, 1 of 3 groups of four."""
    ours, theirs = ["the cat sat on the mat"], ["the cat sat on a mat"]
    for metric in (counts.SACREBLEU, counts.TOKENISED):
        assert counts.count(metric, ours, theirs).rows == [[6, 6, 5, 3, 2, 1, 6, 5, 4, 3]]
    # "ab" has two letters and one pair. "abc" has three letters, two pairs and one triple.
    row = [2, 3, 2, 1, 2, 1, 0, 1, 0, *[0, 0, 0] * 3]
    assert counts.count(counts.CHRF, ["ab"], ["abc"]).rows == [row]


def test_scores_equal_sacrebleus():
    ours = translations(7)
    found = counts.compare(ours, REFERENCES, "here")
    for metric, scorer in ((counts.SACREBLEU, BLEU()), (counts.CHRF, CHRF())):
        expected = scorer.corpus_score(ours, [REFERENCES]).score
        score, signature = found.score(metric)
        assert score == pytest.approx(expected, rel=1e-14) and signature == str(scorer.get_signature())
    assert found.score(counts.TOKENISED) == (None, "")


@pytest.fixture
def kept(tmp_path):
    """The folder of an archived run, which has only counts, and its scores before."""
    plain_run(tmp_path / "a-1", [10], [4]).write()
    (run,) = find_runs([tmp_path])
    generated(run.folder, ["<<unk>> " + line for line in REFERENCES], translations(12))
    before = read_test(run.folder, None)
    (run.folder / counts.FILE).write_text(counts.as_text(before.counts))
    (run.folder / "generate.log").unlink()
    return run.folder, before


def test_scores_are_read_from_the_file(kept):
    folder, before = kept
    after = read_test(folder, None)
    for score in ("bleu", "signature", "chrf", "chrf_signature", "tokenised", "tokenised_signature"):
        assert getattr(after, score) == getattr(before, score)
    assert after.bleu > 50 and after.tokenised
    assert after.remarks == ["20 references contain <<unk>> in place of words outside the dictionary"]
    assert after.source == str(folder / counts.FILE)
    assert after.counts.by[counts.SACREBLEU] == before.counts.by[counts.SACREBLEU]
    assert after.counts.references == before.counts.references


def test_translations_take_precedence_over_counts(kept):
    folder, before = kept
    (folder / counts.FILE).write_text("of another program")
    generated(folder, REFERENCES, translations(3))
    assert read_test(folder, None).bleu == counts.compare(translations(3), REFERENCES, "").score(counts.SACREBLEU)[0]
    (folder / "generate.log").unlink()
    (folder / "hypotheses").write_text("\n".join(translations(3)))
    after = read_test(folder, None)
    assert after.bleu is None and "name a file of raw references with --references" in after.remarks[0]


def test_counts_of_other_references(kept):
    folder, before = kept
    remark = "the scores from counts.jsonl were computed with references that differ from "
    assert read_test(folder, REFERENCES).remarks[0] == f"{remark}--references"
    assert read_test(folder, REFERENCES).bleu == before.bleu
    (folder / "references").write_text("\n".join(REFERENCES))
    assert read_test(folder, None).remarks[0] == f"{remark}the file references beside the translations"
    assert len(read_test(folder, ["<<unk>> " + line for line in REFERENCES]).remarks) == 1


def test_an_empty_log_is_not_an_unfinished_translation(kept):
    folder, before = kept
    (folder / "generate.log").write_text("")
    assert (read_test(folder, None).bleu, len(read_test(folder, None).remarks)) == (before.bleu, 1)


def test_another_signature_is_not_resampled(kept):
    folder, before = kept
    plain_run(folder.parent / "b-1", [10], [4], layers=3).write()
    text = counts.as_text(counts.compare(translations(15), ["<<unk>> " + line for line in REFERENCES], "here"))
    (folder.parent / "b-1" / counts.FILE).write_text(text.replace("tok:13a", "tok:char", 1))
    runs = find_runs([folder.parent])
    arms, tests = group(runs), {run.name: read_test(run.folder, None) for run in runs}
    assert paired_bootstrap(arms, arms[0], tests) == []
    remark_other_test_sets(arms, arms[0], tests)
    signature = before.signature.replace("13a", "char")
    assert (
        tests["b-1"].remarks[-1]
        == f"omitted from the paired bootstrap: scored by a different sacreBLEU ({signature}) than a-1"
    )


def test_no_tokenised_bleu_without_tokens(tmp_path):
    text = counts.as_text(counts.compare(translations(7), REFERENCES, "here"))
    head, *rows = map(json.loads, text.splitlines())
    assert len(rows) == 20 and set(head) == {"references", "unknown", "referred", "sacreBLEU", "chrF"}
    assert "cat" not in text and "mat" not in text
    (tmp_path / counts.FILE).write_text(text)
    assert set(counts.read(tmp_path / counts.FILE).by) == {"sacreBLEU", "chrF"}


def test_tokenised_counts_only(tmp_path):
    """A run with --tokenizer has detokenised translations and tokenised T-lines, so only H-lines can be compared."""
    words = counts.Counts({counts.TOKENISED: counts.count(counts.TOKENISED, translations(7), REFERENCES)})
    (tmp_path / counts.FILE).write_text(counts.as_text(words))
    test = read_test(tmp_path, None)
    assert (test.bleu, test.tokenised) == (None, words.score(counts.TOKENISED)[0])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: "", "not enough values"),
        (lambda text: "[]\n", ""),
        (lambda text: text.replace('"unknown"', '"known"'), "its first line lacks 'unknown'"),
        (
            lambda text: text.replace('"sacreBLEU"', '"BLEU"'),
            "a value in the first line has the wrong type, or a metric is missing",
        ),
        (
            lambda text: text.replace('"unknown": 20', '"unknown": "many"'),
            "a value in the first line has the wrong type, or a metric is missing",
        ),
        (
            lambda text: text.splitlines()[0],
            "the rows of sacreBLEU do not add up to the sums in the first line; rows may be missing",
        ),
        (
            lambda text: text[: text[:-1].rindex("\n") + 1],
            "the rows of sacreBLEU do not add up to the sums in the first line; rows may be missing",
        ),
        (lambda text: text + "[1, 2]\n", "each row of sacreBLEU must have 10 whole numbers"),
        (lambda text: text + "[1, 2, 0, 0, 0, 0, 7, 8, 9, 0.5]\n", "each row of sacreBLEU must have 10 whole numbers"),
        (
            lambda text: text + "[1, 2, 8, 0, 0, 0, 7, 8, 9, 1]\n",
            "in a row of sacreBLEU, the number of matching n-grams is larger than the number of n-grams in the translation",
        ),
        (
            lambda text: text + f"[1, 2, 0, 0, 0, 0, 7, 8, 9, {10**40}]\n",
            "each row of sacreBLEU must have 10 whole numbers",
        ),
        (lambda text: text.replace('"chrF": [', '"chrF": [[], '), "too many values"),
        (lambda text: text + "[" * 100_000, ""),
        (lambda text: text + "\0", ""),
    ],
)
def test_a_file_of_something_else(kept, spoil, message):
    """The run has no score, and the report names the file. Other runs are not affected."""
    folder, _ = kept
    file = folder / counts.FILE
    file.write_text(spoil(file.read_text()))
    with pytest.raises(InputError, match=f"^{file}: is not a file of translation counts .*{message}"):
        counts.read(file)
    test = read_test(folder, None)
    (fault,) = test.faults
    assert fault.startswith("counts.jsonl: is not a file of translation counts ") and test.bleu is None
