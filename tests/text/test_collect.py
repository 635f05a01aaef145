"""Text flags of export: wrong or missing parts give one-line errors."""

import re
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import dictionaries, export_file, load_translator, packed_file
from fairseq_reservoir.checkpoint.anonymize import sentencepiece_without_names
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.text import collect
from fairseq_reservoir.text.collect import TextFlags
from tests.support.commands import train
from tests.support.numbers import learn_pieces


@pytest.fixture
def refused(of_numbers, tmp_path):
    """Return a function that exports with text flags and returns the error."""

    def refuse(checkpoint=None, **flags):
        with pytest.raises(InputError) as refusal:
            export(checkpoint or of_numbers.path, tmp_path / "out.safetensors", text=TextFlags(**flags))
        assert "\n" not in str(refusal.value) and not (tmp_path / "out.safetensors").exists()
        return str(refusal.value)

    return refuse


def test_content_of_the_text_parts(of_numbers, with_text):
    text = export_file.read_text(with_text)
    lines = (of_numbers.data / "dict.en.txt").read_text().splitlines()
    assert list(text.source) == [line.split(" ")[0] for line in lines] == list(text.target)
    model = sentencepiece_without_names(of_numbers.pieces.read_bytes())
    assert (text.languages, text.kind, text.model) == (("en", "de"), "sentencepiece", model)
    assert (text.tokenizer, text.lowercase) == ("", False)


def test_an_export_without_text_is_as_before(of_numbers, tmp_path):
    written = export(of_numbers.path, tmp_path / "a.safetensors")
    assert packed_file.read(tmp_path / "a.safetensors")[0]["version"] == 1 and not written.text_bytes
    assert export_file.read_text(tmp_path / "a.safetensors") is None
    assert export_file.text_bytes(tmp_path / "a.safetensors") == 0


def test_flags_that_contradict_each_other(refused, of_numbers):
    pieces = str(of_numbers.pieces)
    assert refused(sentencepiece_model=pieces, bpe_codes=pieces).startswith(
        "--sentencepiece-model --bpe-codes: the data was split"
    )
    assert refused(with_text=True, tokenizer="penn") == "--tokenizer penn: choose from moses"
    assert refused(with_text=True, moses_no_dash_splits=True).startswith(
        "--moses-no-dash-splits: needs --tokenizer moses"
    )


def test_files_that_are_not_there_or_none(refused, tmp_path, monkeypatch):
    path = tmp_path / "a.model"
    assert refused(sentencepiece_model=str(path)) == f"--sentencepiece-model {path}: no such file"
    path.write_bytes(b"no model")
    assert refused(sentencepiece_model=str(path)).startswith(
        f"--sentencepiece-model {path}: not a SentencePiece model ("
    )
    assert refused(bpe_codes=str(path)).startswith(
        f"--bpe-codes {path}: restores the pieces of only 0 of 40 sentences of "
    )
    monkeypatch.setattr(collect, "MOST_BYTES", 5)
    assert refused(bpe_codes=str(path)) == f"--bpe-codes {path}: has 8 bytes; an export can store at most 5"


def test_pieces_that_nobody_named(refused):
    found = refused(with_text=True)
    assert re.fullmatch(
        "--with-text: the dictionary has pieces such as \u2581.*; give --sentencepiece-model FILE, the file that split words into pieces",
        found,
    )


@pytest.mark.parametrize("of_ten, named", [(0, False), (1, False), (2, True), (9, True)])
def test_few_pieces_among_many_words_are_seen_in_sentences(monkeypatch, of_ten, named):
    """One such word is accepted. "@@" at the end of a sentence is ignored, because nothing follows it."""
    dictionary = Dictionary()
    for word in [f"w{i}" for i in range(200)] + ["tre@@"]:
        dictionary.add_symbol(word)
    sentences = [["w1", "tre@@", "w2"]] * of_ten + [["w1", "w2", "tre@@"]] * (10 - of_ten)
    monkeypatch.setattr(collect, "_sentences", lambda task: (("valid", words) for words in sentences))
    task = SimpleNamespace(cfg=SimpleNamespace(data="bin"))
    text = SimpleNamespace(kind="words", source=tuple(dictionary.symbols[4:]))
    if not named:
        collect._check_pieces(TextFlags(with_text=True), text, task)
        return
    with pytest.raises(InputError) as refusal:
        collect._check_pieces(TextFlags(with_text=True), text, task)
    assert str(refusal.value) == (
        f"--with-text: {of_ten} of 10 sentences of bin have pieces such as tre@@; "
        "give --bpe-codes FILE, the file that split words into pieces"
    )


@pytest.mark.parametrize("size", [60, 140])
def test_pieces_of_the_same_corpus_but_another_size(refused, of_numbers, tmp_path, size):
    learn_pieces(of_numbers.raw, tmp_path / "other.model", size)
    found = refused(sentencepiece_model=str(tmp_path / "other.model"))
    assert re.search(
        r"other.model: restores the pieces of only \d+ of 40 sentences of .* \(valid\); give the file", found
    )


def test_another_task(refused, toy_data, tmp_path):
    flags = (
        "--task language_modeling --arch reservoir_transformer_lm --reservoir-decoder LF --decoder-embed-dim 16".split()
    )
    flags += "--decoder-ffn-embed-dim 24 --decoder-attention-heads 2 --tokens-per-sample 16 --max-update 1".split()
    train(
        toy_data, *flags, "--save-dir", tmp_path, begin="--cpu --optimizer adam --batch-size 4 --num-workers 0".split()
    )
    found = refused(tmp_path / "checkpoint_last.pt", with_text=True)
    assert found == "--with-text: needs a model of the task translation; this model has LanguageModelingTask"


def test_dictionaries_of_another_size_than_the_model(refused, tmp_path, toy_data, make_corpus):
    """A checkpoint saved by a script, without its data: only the sizes show that the dictionaries are others."""
    train(toy_data, "--encoder-layers", 1, "--decoder-layers", 1, "--max-update", 1, "--save-dir", tmp_path)
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    del state["extra_state"]["fairseq_reservoir"]
    state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    torch.save(state, tmp_path / "saved.pt")
    other = make_corpus()
    lines = (other / "dict.en.txt").read_text().splitlines(keepends=True)
    (other / "dict.en.txt").write_text("".join(lines[:-2]))
    with pytest.raises(InputError) as refusal:
        export(tmp_path / "saved.pt", tmp_path / "a.safetensors", text=TextFlags(with_text=True), data=str(other))
    assert str(refusal.value) == (
        f"--data {other}: the source dictionary has {len(lines) + 2} entries, but the model needs {len(lines) + 4}"
    )
    (other / "dict.en.txt").write_text("".join(lines))
    export(tmp_path / "saved.pt", tmp_path / "a.safetensors", text=TextFlags(with_text=True), data=str(other))


def test_an_export_of_an_export_keeps_its_text(with_text, tmp_path, monkeypatch):
    """Converts the dtype, without the training data. Its vectors can be written too."""
    real = dictionaries.tasks.setup_task

    def gone(*args, **kwargs):
        raise FileNotFoundError("gone")

    monkeypatch.setattr(dictionaries.tasks, "setup_task", gone)
    export(with_text, tmp_path / "half.safetensors", dtype="fp16")
    assert export_file.read_text(tmp_path / "half.safetensors") == export_file.read_text(with_text)
    cli.main(["dump-embeddings", str(with_text), str(tmp_path / "vectors")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half.safetensors", "vectors.de", "vectors.en"]
    monkeypatch.setattr(dictionaries.tasks, "setup_task", real)
    line = "a line of five words"
    assert load_translator(tmp_path / "half.safetensors").translate(line, max_len_b=5)


@pytest.mark.parametrize(
    "word, why", [("<s>", " twice"), ("a\u00a0b", ", which is not one word"), ("", ", which is not one word")]
)
def test_words_that_a_line_cannot_hold(word, why):
    dictionary = Dictionary()
    for each in ("one", word):
        dictionary.add_symbol(each, overwrite=True)
    with pytest.raises(InputError) as refusal:
        collect._symbols(dictionary, TextFlags(with_text=True))
    assert (
        str(refusal.value)
        == f"--with-text: a dictionary has the symbol {word!r}{why}; remove --with-text and the flags of the subword model"
    )
