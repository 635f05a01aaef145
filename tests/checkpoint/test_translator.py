"""The translator gives the translations of fairseq-generate, one per line and in order."""

import dataclasses
import gzip
import logging
import math
import re

import pytest
import torch

from fairseq_reservoir.checkpoint import export_file, load_translator, packed_file
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.text.collect import TextFlags
from tests.support import numbers
from tests.support.commands import RUN, train
from tests.support.miniature import REAL

SHORT = {"max_len_b": 20}


@pytest.fixture(scope="module")
def translator(with_text):
    return load_translator(with_text)


@pytest.fixture(scope="module")
def test_set(of_numbers):
    return (of_numbers.raw / "test_2016_flickr.en").read_text().splitlines()


@pytest.fixture
def of_fairseq(run_fairseq, of_numbers, tmp_path):
    """Return a function that runs fairseq-generate with the model of a file, ``of_fairseq(path, flags)``."""
    return lambda path, *words: translated_by_fairseq(run_fairseq, of_numbers, path, tmp_path, *words)


def translated_by_fairseq(run_fairseq, made, path, folder, *words):
    """Return fairseq-generate's (text, score) of each line of the test set."""
    flags = "--cpu --beam 5 --remove-bpe sentencepiece --max-len-b 20 --num-workers 0".split()
    run_fairseq("generate", made.data, "--path", path, *flags, *words, "--results-path", folder)
    found = {}
    for line in (folder / "generate-test.txt").read_text().split("\n"):
        if line.startswith("D-"):
            number, score, text = line.split("\t")
            found.setdefault(int(number[2:]), []).append((text, pytest.approx(float(score), abs=1e-4)))
    return [found[i] for i in range(len(found))]


@pytest.mark.parametrize("kind, nbest", [("checkpoint", 3), ("export", 1)])
def test_as_fairseq_generate(translator, of_numbers, with_text, of_fairseq, test_set, kind, nbest):
    theirs = of_fairseq(of_numbers.path if kind == "checkpoint" else with_text, "--nbest", nbest)
    found = translator.hypotheses(test_set, nbest=nbest, **SHORT)
    assert [[(one.text, one.score / math.log(2)) for one in line] for line in found] == theirs
    assert len(set(map(str, found))) > 10


def test_compact(of_numbers, translator, test_set, tmp_path):
    pytest.importorskip("constriction", reason="constriction is not installed")
    text = TextFlags(sentencepiece_model=str(of_numbers.pieces))
    written = export(of_numbers.path, tmp_path / "a.safetensors", compact=True, text=text)
    assert written.text_bytes > 0
    found = load_translator(tmp_path / "a.safetensors").translate(test_set[:5], **SHORT)
    assert found == translator.translate(test_set[:5], **SHORT)


def test_one_sentence_several_and_none(translator, test_set):
    one, *others = translator.translate(test_set[:3], **SHORT)
    assert translator.translate(test_set[0], **SHORT) == one and isinstance(one, str)
    assert translator.translate([], **SHORT) == [] and translator.translate("", **SHORT) == ""
    lines = ["", test_set[0], " \t ", "\u200b", test_set[1], "\ufeff"]
    found = translator.translate(lines, **SHORT)
    assert found[1] == one and found[4] == others[0]
    assert [found[i] for i in (0, 2)] == ["", ""]


def test_the_order_does_not_depend_on_the_batch(translator, test_set):
    lines = test_set[:6] + [""] + test_set[6:10]
    expected = [translator.translate(line, **SHORT) for line in lines]
    for size in (4, 100):
        assert translator.translate(lines, batch_size=size, **SHORT) == expected


def test_unknown_words(translator):
    found = translator.translate(["\u4f60\u597d \U0001f600 one", "e\u0301\u0000 two", "x" * 3000], **SHORT)
    assert len(found) == 3 and not any("\n" in text for text in found)


def test_a_long_line_is_translated_in_parts(translator, test_set):
    """A line of three sentences is split at their ends, and translated as the three."""
    lines = [f"{line}." for line in test_set if 6 < len(translator.pieces.cut(line)) < 20][:3]
    longest = max(len(translator.pieces.cut(line)) for line in lines)
    cut = [translator.hypotheses([line], **SHORT)[0][0] for line in lines]
    whole = translator.hypotheses([" ".join(lines)], split_above=longest, **SHORT)[0][0]
    if whole.parts == 3:
        assert whole.text == " ".join(one.text for one in cut)
        assert min(one.score for one in cut) <= whole.score <= max(one.score for one in cut)
    assert whole.parts >= 3
    assert translator.hypotheses([lines[0]], **SHORT)[0][0].parts == 1


def test_longer_than_the_models_positions(translator, test_set):
    words = " ".join(test_set * 30)
    positions = translator.max_positions[0]
    assert len(translator.pieces.cut(words)) > positions
    (found,) = translator.hypotheses([words], beam=1, split_above=10**6, max_len_b=2)[0]
    assert found.parts >= 2 and found.cut_short


def test_a_translation_that_is_cut_short_is_marked(translator, test_set):
    assert translator.hypotheses(test_set[:1], max_len_b=1)[0][0].cut_short
    assert not translator.hypotheses(test_set[:1], max_len_b=100)[0][0].cut_short


def test_options(translator):
    for options, message in (
        ({"beam": 0}, "beam 0: must be a whole number of at least 1"),
        ({"batch_size": 1.5}, "batch_size 1.5: must be"),
        ({"nbest": 6}, "nbest 6: must be at most beam (5)"),
        (
            {"verbose": True},
            "verbose: fairseq's generation has no option of this name; examples of options are lenpen and max_len_b",
        ),
        ({"lenpen": "a"}, "lenpen a: "),
        ({"lenpen": float("nan")}, "lenpen nan: must be from -10 to 10"),
        ({"temperature": 0}, "temperature 0: must be greater than 0"),
        ({"max_len_b": -5}, "max_len_b -5: "),
        ({"sampling_topp": 2.0}, "sampling_topp 2: "),
        ({"diverse_beam_groups": 2}, "diverse_beam_groups 2: "),
        (
            {"score_reference": True},
            "score_reference True: works only in fairseq-generate, because it needs references",
        ),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            translator.hypotheses(["one"], **options)


def test_fairseqs_own_interface(translator, test_set):
    assert translator.decode(translator.encode(test_set[0])) == test_set[0]  # the dictionaries are one
    with torch.no_grad():
        (best,) = translator.generate([translator.encode(test_set[0])], beam=5, **SHORT)[0][:1]
    assert translator.decode(best["tokens"]) == translator.translate(test_set[0], **SHORT)


def test_files_without_text(of_numbers, tmp_path):
    export(of_numbers.path, tmp_path / "a.safetensors")
    for path, message in (
        (
            of_numbers.path,
            r"checkpoint_last.pt: is not an export, because the name does not end in .safetensors; "
            "to write an export with dictionaries, run",
        ),
        (
            tmp_path / "a.safetensors",
            "a.safetensors: is an export without dictionaries; to write an export with dictionaries, run",
        ),
        (tmp_path / "b.safetensors", "b.safetensors: no such file"),
    ):
        with pytest.raises(InputError, match=message):
            load_translator(path)


def test_a_folder_without_dictionaries(of_numbers, tmp_path):
    """The training did not name its languages, so fairseq infers them from the names of files."""
    missing = f"data {tmp_path}: does not contain the dictionaries of the model"
    for reason in (
        "no file such as train.en-de.en.idx, whose name shows the languages",
        f"{tmp_path}/dict.en.txt: no such file",
    ):
        with pytest.raises(InputError) as refused:
            load_translator(of_numbers.path, tmp_path)
        assert str(refused.value) == f"{missing} ({reason})"
        (tmp_path / "train.en-de.en.idx").touch()


def test_with_a_folder_of_data_sentences_are_pieces_as_before(with_text, of_numbers, translator, test_set):
    ours = load_translator(with_text, of_numbers.data)
    cut = " ".join(translator.pieces.cut(test_set[0]))
    assert ours.translate(cut, **SHORT).replace(" ", "").replace("\u2581", " ").strip() == translator.translate(
        test_set[0], **SHORT
    )


def forged(with_text, path, **fields):
    """Write an export with a right hash and changed text parts."""
    body, tensors = packed_file.read(with_text)
    text = dataclasses.replace(export_file.read_text(with_text), **fields)
    packed_file.write(
        path, {name: value for name, value in body.items() if name not in ("version", "text")}, tensors, text=text
    )
    return path


def test_parts_that_do_not_fit_the_model(with_text, tmp_path):
    words = export_file.read_text(with_text).source
    for fields, message in (
        (
            {"source": words[::-1]},
            r"the source dictionary in the file \(\d+ entries, .* differs from that of the training",
        ),
        ({"target": (*words, "more")}, "the target dictionary in the file"),
        ({"model": b"no model"}, "a.safetensors: not a SentencePiece model"),
        ({"kind": "byte_pairs", "model": b"a b c d"}, "a.safetensors: line 1, 'a b c d', is not a BPE code"),
    ):
        with pytest.raises(InputError, match=message) as refusal:
            load_translator(forged(with_text, tmp_path / "a.safetensors", **fields))
        assert "\n" not in str(refusal.value)


def test_byte_pairs_a_tokenizer_and_lower_case(of_numbers, toy_data, of_l_and_t, tmp_path):
    """Codes without merges leave the words of ``toy_data``, which are single letters, unchanged."""
    (tmp_path / "codes").write_text("#version: 0.2\nx y</w>\n")
    flags = TextFlags(bpe_codes=str(tmp_path / "codes"), tokenizer="moses", lowercase=True)
    export(of_l_and_t.path, tmp_path / "a.safetensors", text=flags)
    export(of_l_and_t.path, tmp_path / "b.safetensors", text=TextFlags(with_text=True))
    found = load_translator(tmp_path / "a.safetensors").translate("A b  C", **SHORT)
    assert found == load_translator(tmp_path / "b.safetensors").translate("a b c", **SHORT)
    assert load_translator(tmp_path / "a.safetensors").pieces.cut("Ab-c, d") == [
        "a@@",
        "b",
        "@@@",
        "-@@",
        "@",
        "c",
        ",",
        "d",
    ]
    assert load_translator(tmp_path / "b.safetensors", regenerate_weights=False).pieces.cut("Ab-c") == ["Ab-c"]


@pytest.mark.slow
def test_multi30k_is_translated_exactly(run_fairseq, tmp_path):
    """The 1,000 lines of a real test set. The model has learned little, so nearly all its translations differ."""
    if not (REAL / "multi30k").exists():
        pytest.skip("../shared/data/multi30k is absent")
    raw = tmp_path / "raw"
    raw.mkdir()
    for path in (REAL / "multi30k").glob("*.gz"):
        (raw / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    flags = (
        "--reservoir-encoder LF --reservoir-decoder L --share-all-embeddings --max-update 300 --batch-size 64".split()
    )
    made = numbers.make(tmp_path, raw, 2000, [*flags, "--encoder-embed-dim", 64, "--lr", 0.005])
    export(made.path, tmp_path / "a.safetensors", text=TextFlags(sentencepiece_model=str(made.pieces)))
    theirs = translated_by_fairseq(run_fairseq, made, made.path, tmp_path, "--beam", 5)
    lines = (raw / "test_2016_flickr.en").read_text().splitlines()
    ours = load_translator(tmp_path / "a.safetensors").translate(lines, **SHORT)
    assert len(ours) == 1000 and ours == [best[0][0] for best in theirs]
    assert len(set(ours)) > 100


def test_nothing_is_logged(with_text, test_set, caplog):
    caplog.set_level(logging.WARNING)
    load_translator(with_text).translate(test_set[:2], **SHORT)
    assert not caplog.records


def test_an_lstm_translates_lines_of_several_lengths(toy_data, tmp_path):
    """fairseq's LSTM takes batches with the longest sentence first."""
    sizes = (
        "--arch frozen_lstm --freeze encoder.emb --encoder-embed-dim 8 --encoder-hidden-size 8 --decoder-embed-dim 8"
    )
    sizes += " --decoder-hidden-size 8 --decoder-out-embed-dim 8 --max-update 2 --disable-validation"
    train(toy_data, *sizes.split(), "--save-dir", tmp_path, begin=RUN)
    export(tmp_path / "checkpoint_last.pt", tmp_path / "lstm.safetensors", text=TextFlags(with_text=True))
    found = load_translator(tmp_path / "lstm.safetensors")
    lines = ["a b c", "d", "e f"]
    assert found.translate(lines, **SHORT) == [found.translate(line, **SHORT) for line in lines]
