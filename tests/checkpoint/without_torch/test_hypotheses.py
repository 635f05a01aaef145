"""CTranslate2 gives the hypotheses and scores of fairseq's search."""

import pytest

from fairseq_reservoir.checkpoint import load_translator
from fairseq_reservoir.checkpoint.without_torch.translator import CT2Translator, open_translator
from fairseq_reservoir.errors import InputError
from tests.support.ctranslate2_models import exported

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install ctranslate2")


@pytest.fixture(scope="module")
def lines(of_numbers):
    return (of_numbers.raw / "test_2016_flickr.en").read_text().splitlines()


@pytest.fixture(scope="module")
def both(with_text):
    return CT2Translator(str(with_text)), load_translator(with_text)


@pytest.mark.parametrize("lenpen, nbest", [(1.0, 1), (0.6, 3)])
def test_hypotheses_and_scores(both, lines, lenpen, nbest):
    """The best translation may differ only where two hypotheses have scores within 1e-4.

    The score of each further one is at least fairseq's, because CTranslate2 chooses from all hypotheses that end in the last step.
    """
    options = {"lenpen": lenpen, "nbest": nbest, "max_len_b": 40, "batch_size": 7}
    ours, theirs = (translator.hypotheses([*lines, "", "x" * 9], 5, **options) for translator in both)
    for one, other in zip(ours, theirs, strict=True):
        assert len(one) == len(other)
        assert all(a.score > b.score - 1e-4 for a, b in zip(one, other))
        if not (one[0].cut_short or other[0].cut_short):  # fairseq scores an end of sentence after the last token
            assert one[0].score == pytest.approx(other[0].score, abs=1e-5)
            assert one[0].text in [each.text for each in other if abs(each.score - one[0].score) < 1e-4]
        assert (one[0].parts, one[0].cut_short) == (other[0].parts, other[0].cut_short)


def test_parts_and_limits(both, lines):
    text = " ".join(lines[:4])
    ours, theirs = (
        translator.hypotheses([text, "one"], 2, split_above=6, max_len_b=3)[0][0].parts for translator in both
    )
    assert ours == theirs > 1
    assert both[0].longest_source() == both[1].longest_source() == 1023
    assert both[0].longest_target() == both[1].longest_target() == 1023
    assert both[0].hypotheses(["one hundred and two"], 2, max_len_b=2)[0][0].cut_short


def test_options_out_of_range(both):
    with pytest.raises(InputError, match=r"nbest 3: must be at most beam \(2\)"):
        both[0].hypotheses(["one"], 2, nbest=3)


def test_the_end_of_sentence_as_a_word(toy_data, tmp_path):
    """A word that is fairseq's symbol does not end the source, as an unknown word does not. Both engines agree."""
    path = str(exported(toy_data, tmp_path, "--reservoir-encoder LT"))
    for translator in (CT2Translator(path), load_translator(path)):
        found = translator.hypotheses(["nothing a b", "</s> a b", "<pad> a b", "<s> a b"], 3, max_len_b=8)
        assert len({one[0].text for one in found}) == 1 and found[0][0].text != ""
        assert [one[0].score for one in found] == pytest.approx(4 * [found[0][0].score])


def test_eight_bits(with_text, both, lines):
    found = CT2Translator(str(with_text), int8=True)
    assert "int8" in found.engine and "float32" in both[0].engine
    ours, theirs = found.hypotheses(lines), both[0].hypotheses(lines)
    assert sum(one[0].text == other[0].text for one, other in zip(ours, theirs)) > len(lines) / 4
    assert any(one[0].score != other[0].score for one, other in zip(ours, theirs))


@pytest.mark.parametrize("threads, expected", [("2", "2 threads"), ("1", "1 thread"), ("many", "thread")])
def test_threads(with_text, monkeypatch, threads, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert CT2Translator(str(with_text)).engine.endswith(expected) or threads == "many"


def test_descriptions_that_lack_an_entry(with_text, tmp_path):
    from fairseq_reservoir.checkpoint import export_file, packed_file

    body, tensors = packed_file.read(with_text)
    del body["config"]["model"]
    packed_file.write(tmp_path / "a.safetensors", body, tensors, text=export_file.read_text(with_text))
    with pytest.raises(InputError, match="^[^ ]*a.safetensors: not usable for CTranslate2 .KeyError: 'model'.$"):
        open_translator(str(tmp_path / "a.safetensors"))
