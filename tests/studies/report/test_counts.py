"""What is counted of translations makes the scores of the translations, and a file of it is read as it was written."""

import json

import pytest
from sacrebleu.metrics import BLEU, CHRF

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report import counts
from fairseq_reservoir.studies.report.arms import group
from fairseq_reservoir.studies.report.runs import find_runs
from fairseq_reservoir.studies.report.translations import paired_bootstrap, read_test, remark_other_test_sets
from tests.support.logs import generated, plain_run
from tests.support.runs_of_a_study import REFERENCES, translations


def test_rows_of_one_sentence():
    """Of 6 words 5 are right (the second "the" is not), of 5 pairs 3, of 4 triples 2, of 3 fours 1."""
    ours, theirs = ["the cat sat on the mat"], ["the cat sat on a mat"]
    for metric in (counts.SACREBLEU, counts.TOKENISED):
        assert counts.count(metric, ours, theirs).rows == [[6, 6, 5, 3, 2, 1, 6, 5, 4, 3]]
    # "ab" has two letters and one pair; "abc" three, two and one triple; neither has more.
    row = [2, 3, 2, 1, 2, 1, 0, 1, 0, *[0, 0, 0] * 3]
    assert counts.count(counts.CHRF, ["ab"], ["abc"]).rows == [row]


def test_a_score_is_that_of_the_sentences():
    ours = translations(7)
    found = counts.compare(ours, REFERENCES, "here")
    for metric, scorer in ((counts.SACREBLEU, BLEU()), (counts.CHRF, CHRF())):
        expected = scorer.corpus_score(ours, [REFERENCES]).score
        assert found.of(metric) == (expected, str(scorer.get_signature()))
    assert found.of(counts.TOKENISED) == (None, "")


@pytest.fixture
def kept(tmp_path):
    """A run of which the counts are left, and its scores before."""
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
    assert after.remarks == ["20 references hold <<unk>>, words not in the dictionary"]
    assert after.source == str(folder / counts.FILE)
    assert after.counts.by[counts.SACREBLEU] == before.counts.by[counts.SACREBLEU]
    assert after.counts.references == before.counts.references


def test_translations_beside_it_come_first(kept):
    folder, before = kept
    (folder / counts.FILE).write_text("of another program")
    generated(folder, REFERENCES, translations(3))
    assert read_test(folder, None).bleu == counts.compare(translations(3), REFERENCES, "").of(counts.SACREBLEU)[0]
    (folder / "generate.log").unlink()
    (folder / "hypotheses").write_text("\n".join(translations(3)))
    after = read_test(folder, None)
    assert after.bleu is None and "--references names raw text" in after.remarks[0]


def test_other_references_than_those_that_it_counts_against(kept):
    folder, before = kept
    remark = "counts.jsonl counts against other references than those of "
    assert read_test(folder, REFERENCES).remarks[0] == f"{remark}--references"
    assert read_test(folder, REFERENCES).bleu == before.bleu
    (folder / "references").write_text("\n".join(REFERENCES))
    assert read_test(folder, None).remarks[0] == f"{remark}the file references beside the translations"
    assert len(read_test(folder, ["<<unk>> " + line for line in REFERENCES]).remarks) == 1


def test_an_empty_log_beside_it_is_no_unfinished_translation(kept):
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
    assert tests["b-1"].remarks[-1] == f"another sacreBLEU ({signature}) than a-1, so not in the bootstrap"


def test_without_words_there_is_no_tokenised_bleu(tmp_path):
    text = counts.as_text(counts.compare(translations(7), REFERENCES, "here"))
    head, *rows = map(json.loads, text.splitlines())
    assert len(rows) == 20 and set(head) == {"references", "unknown", "referred", "sacreBLEU", "chrF"}
    assert "cat" not in text and "mat" not in text
    (tmp_path / counts.FILE).write_text(text)
    assert set(counts.read(tmp_path / counts.FILE).by) == {"sacreBLEU", "chrF"}


def test_words_alone(tmp_path):
    """As of a run with --tokenizer, whose translations and T-lines are not in the same words."""
    words = counts.Counts({counts.TOKENISED: counts.count(counts.TOKENISED, translations(7), REFERENCES)})
    (tmp_path / counts.FILE).write_text(counts.as_text(words))
    test = read_test(tmp_path, None)
    assert (test.bleu, test.tokenised) == (None, words.of(counts.TOKENISED)[0])


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda text: "", "not enough values"),
        (lambda text: "[]\n", ""),
        (lambda text: text.replace('"unknown"', '"known"'), "its first line lacks 'unknown'"),
        (lambda text: text.replace('"sacreBLEU"', '"BLEU"'), "its first line is not one of counts"),
        (lambda text: text.replace('"unknown": 20', '"unknown": "many"'), "its first line is not one of counts"),
        (lambda text: text.splitlines()[0], "the rows of sacreBLEU do not add up, some are lost"),
        (lambda text: text[: text[:-1].rindex("\n") + 1], "the rows of sacreBLEU do not add up, some are lost"),
        (lambda text: text + "[1, 2]\n", "rows of 10 whole numbers are needed for sacreBLEU"),
        (lambda text: text + "[1, 2, 0, 0, 0, 0, 7, 8, 9, 0.5]\n", "rows of 10 whole numbers"),
        (lambda text: text + "[1, 2, 8, 0, 0, 0, 7, 8, 9, 1]\n", "a row of sacreBLEU has more right than there are"),
        (lambda text: text + f"[1, 2, 0, 0, 0, 0, 7, 8, 9, {10**40}]\n", "rows of 10 whole numbers"),
        (lambda text: text.replace('"chrF": [', '"chrF": [[], '), "too many values"),
        (lambda text: text + "[" * 100_000, ""),
        (lambda text: text + "\0", ""),
    ],
)
def test_a_file_of_something_else(kept, spoil, told):
    """The run has no score then, and the report names the file; other runs are not affected."""
    folder, _ = kept
    file = folder / counts.FILE
    file.write_text(spoil(file.read_text()))
    with pytest.raises(InputError, match=f"^{file}: holds no counts of translations .*{told}"):
        counts.read(file)
    test = read_test(folder, None)
    (fault,) = test.faults
    assert fault.startswith("counts.jsonl: holds no counts of translations ") and test.bleu is None
