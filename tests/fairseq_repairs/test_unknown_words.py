"""``--replace-unk`` replaces unknown words of a translation by source words."""

import pytest
from fairseq import utils
from fairseq.data import Dictionary

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs.unknown_words import NO_FILE, _Aligned
from tests.support.commands import RUN, train


def dictionary():
    words = Dictionary()
    for word in ("ein", "Ha@@", "us", "kauft"):
        words.add_symbol(word)
    return words


def replaced(text, alignment, source="<unk> buys a house", words=None, align_dict=None, remove_bpe=None):
    """Return the text of a translation after the replacement."""
    target_dictionary = dictionary()
    alignment = _Aligned(alignment)
    alignment.words = words
    tokens = target_dictionary.encode_line(text, add_if_not_exist=False)
    _, found, _ = utils.post_process_prediction(
        tokens, source, alignment, align_dict or {}, target_dictionary, remove_bpe
    )
    return found


PAIRS = [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_the_typed_word_is_used():
    assert replaced("Ann kauft ein us", PAIRS, words=["Ann", "buys", "a", "house"]) == "Ann kauft ein us"
    assert (
        replaced("Ann kauft ein us", PAIRS) == "<unk> kauft ein us"
    )  # without the typed words, only the source tokens are available


def test_an_alignment_dictionary_translates_the_word():
    assert (
        replaced("x kauft ein y", PAIRS, source="Ann buys a house", align_dict={"house": "Haus"})
        == "Ann kauft ein Haus"
    )


def test_pieces_are_replaced_before_they_are_joined():
    """The unknown token is the fourth piece, and the third word."""
    pairs = [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert replaced("ein Ha@@ us y", pairs, source="a b c d", remove_bpe="@@ ") == "ein Haus d"


def test_soft_alignments():
    """--print-alignment soft gives attention weights as strings, for each target token and the end of the sentence."""
    assert replaced("ein y", [["0.9", "0.1"], ["0.2", "0.8"], ["0.5", "0.5"]], source="a b") == "ein b"
    # The last weight of a row belongs to the end of the source sentence, which has no word.
    rows = [["0.9", "0.1", "0.0"], ["0.1", "0.3", "0.6"], ["0.2", "0.2", "0.6"]]
    assert replaced("ein y", rows, source="a b") == "ein b"


def test_a_token_without_an_alignment_stays_unknown():
    assert replaced("ein y", [], source="a b") == "ein <unk>"
    assert replaced("ein y", [(0, 0), (2, 1)], source="a b") == "ein <unk>", "aligned with the end of the source"


def test_alignment_dictionary_files(tmp_path):
    assert utils.load_align_dict(NO_FILE) == {} and utils.load_align_dict(None) is None
    with pytest.raises(FileNotFoundError):
        utils.load_align_dict.__wrapped__(NO_FILE)
    with pytest.raises(InputError, match="^--replace-unk nowhere: no such file; "):
        utils.load_align_dict("nowhere")
    (tmp_path / "dictionary").write_text("house Haus\nhouse\n")
    with pytest.raises(InputError, match="dictionary: each line must have a source word and a target word"):
        utils.load_align_dict(str(tmp_path / "dictionary"))


def test_fairseq_interactive(toy_data, run_fairseq, tmp_path, capsys):
    """The constraint puts an unknown word into the translation. It can only be aligned with the one source word."""
    model = "--arch transformer_tiny --encoder-layers 1 --decoder-layers 1 --max-update 1 --disable-validation --no-epoch-checkpoints"
    train(toy_data, *RUN, *model.split(), "--save-dir", tmp_path, begin=[])
    (tmp_path / "input").write_text("X\tunknown\nY\tunknown\n")
    flags = ["--path", tmp_path / "checkpoint_last.pt", "--input", tmp_path / "input", "--cpu", "--constraints"]
    capsys.readouterr()
    for buffer in (1, 2):
        run_fairseq("interactive", toy_data, *flags, "--replace-unk", "--buffer-size", buffer, "--batch-size", buffer)
        translations = [line.split("\t")[2] for line in capsys.readouterr().out.splitlines() if line.startswith("H-")]
        assert "X" in translations[0].split() and "Y" in translations[1].split()
        assert "<unk>" not in " ".join(translations)
    with pytest.raises(InputError, match="^--replace-unk: fairseq-generate needs text data for this flag; "):
        run_fairseq("generate", toy_data, *flags[:2], "--replace-unk")
    with pytest.raises(InputError, match="^--constraints: fairseq-generate does not read constraints; use "):
        run_fairseq("generate", toy_data, *flags[:2], "--constraints")
