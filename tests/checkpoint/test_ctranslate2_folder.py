"""``materialize --ctranslate2``: CTranslate2 gives the translations of the export, and errors are one line."""

import shutil
import sys
from argparse import Namespace

import pytest
import torch

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import ctranslate2_folder, load_translator
from fairseq_reservoir.checkpoint.anonymize import sentencepiece_without_names
from fairseq_reservoir.checkpoint.dry_build import build_arch
from fairseq_reservoir.checkpoint.plain_transformer import flag_not_in_ctranslate2
from fairseq_reservoir.errors import InputError
from tests.support.commands import train

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install ctranslate2")


def test_an_export_with_text_alone(with_text, of_numbers, tmp_path, capsys):
    import sentencepiece

    folder = tmp_path / "ct2"
    cli.main(["materialize", str(with_text), "--ctranslate2", str(folder)])
    said = capsys.readouterr().out
    assert said.startswith(f"{folder}: ") and said.endswith(" bytes, CTranslate2's model\n")
    assert list(tmp_path.iterdir()) == [folder]
    assert (folder / "sentencepiece.model").read_bytes() == sentencepiece_without_names(of_numbers.pieces.read_bytes())
    lines = (of_numbers.raw / "test_2016_flickr.en").read_text().splitlines()[:6]
    ours = load_translator(with_text).translate(lines, beam=1, max_len_b=20)
    theirs = ctranslate2.Translator(str(folder), device="cpu", inter_threads=1, intra_threads=1)
    cutter = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    cut = [cutter.encode(line, out_type=str) for line in lines]
    found = theirs.translate_batch(cut, beam_size=1, max_decoding_length=20)
    assert [cutter.decode(one.hypotheses[0]) for one in found] == ours


def test_a_checkpoint_with_its_data_and_a_file_of_fairseqs(of_l_and_t, toy_data, tmp_path, capsys):
    folder, plain = tmp_path / "ct2", tmp_path / "plain.pt"
    flags = ["--data", str(toy_data), "--quantization", "int8"]
    cli.main(["materialize", str(of_l_and_t.path), str(plain), "--ctranslate2", str(folder), *flags])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{plain}: ") and said[1].endswith("CTranslate2's model in int8")
    assert torch.load(plain, weights_only=True)["model"] and ctranslate2.contains_model(str(folder))
    assert not (folder / "sentencepiece.model").exists()


@pytest.fixture
def refused(tmp_path):
    """Return a function that converts to the folder ``ct2`` and returns the error."""

    def refuse(checkpoint, *flags):
        with pytest.raises(SystemExit) as leaving:
            cli.main(["materialize", str(checkpoint), "--ctranslate2", str(tmp_path / "ct2"), *map(str, flags)])
        assert "\n" not in str(leaving.value)
        return str(leaving.value).removeprefix("fairseq-reservoir: error: ")

    return refuse


def test_unsupported_models_are_named(refused, every_kind, with_text, tmp_path):
    assert refused(every_kind.path).endswith("encoder layer 2 is F (feed-forward), which fairseq's transformer does not have; only"
                                             " plans of L and T can be materialized")  # fmt: skip
    assert refused(with_text, "--quantization", "int1").startswith("--quantization int1: choose from ")
    assert refused(with_text, "--data", tmp_path / "no").startswith(
        f"--data {tmp_path}/no: does not contain the dictionaries"
    )
    assert list(tmp_path.iterdir()) == []


def test_errors_of_ctranslate2_are_one_line(with_text, refused, monkeypatch):
    def refuses(self, *args, **kwargs):
        raise ValueError("The model is not supported:\n\n- Option --activation-fn sin is not supported")

    monkeypatch.setattr(ctranslate2.converters.FairseqConverter, "convert", refuses)
    assert refused(with_text).endswith("CTranslate2 cannot represent the model: The model is not supported: - Option"
                                       " --activation-fn sin is not supported")  # fmt: skip


def test_existing_folders(with_text, refused, tmp_path):
    folder = tmp_path / "ct2"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    assert refused(with_text) == f"--ctranslate2 {folder}: exists; --force replaces it"
    assert (
        refused(with_text, "--force")
        == f"--ctranslate2 {folder}: exists and is not a CTranslate2 model; --force only overwrites CTranslate2 models"
    )
    assert (folder / "mine").read_text() == "mine"
    (folder / "mine").rename(folder / "model.bin")
    ctranslate2_folder.convert(str(with_text), str(folder), force=True)
    assert ctranslate2.contains_model(str(folder)) and list(tmp_path.iterdir()) == [folder]


def test_inputs_in_the_replaced_folder_are_not_lost(with_text, refused, tmp_path):
    folder = tmp_path / "ct2"
    ctranslate2_folder.convert(str(with_text), str(folder))
    inside = shutil.copy(with_text, folder / "model.safetensors")
    whole = f"is in the folder that --ctranslate2 {folder} replaces; name another folder for --ctranslate2"
    assert refused(inside, "--force") == f"CHECKPOINT {inside}: {whole}"
    out = folder / "plain.pt"
    with pytest.raises(InputError, match=f"OUT {out}: {whole}"):
        ctranslate2_folder.convert(str(with_text), str(folder), out=str(out), force=True)
    assert inside.exists() and ctranslate2.contains_model(str(folder))


def test_flags_that_need_the_folder(with_text):
    for flags, message in (
        ([], "no output: name the file OUT.pt to write, or a folder with --ctranslate2, or both"),
        (["--quantization", "int8"], "--quantization int8: needs --ctranslate2 FOLDER"),
        (["a.pt", "--data", "x"], "--data x: needs --ctranslate2 FOLDER"),
    ):
        with pytest.raises(SystemExit, match=message):
            cli.main(["materialize", str(with_text), *flags])


def test_without_the_package(with_text, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert (
        refused(with_text)
        == "--ctranslate2 needs the package ctranslate2, which is not installed: pip install ctranslate2"
    )


def test_a_model_with_an_unsupported_option(toy_data, tmp_path, refused):
    """CTranslate2 would convert it into a model with other outputs."""
    flags = "--reservoir-encoder L --reservoir-decoder L --cross-self-attention --no-epoch-checkpoints".split()
    train(toy_data, *flags, "--max-update", 1, "--disable-validation", "--save-dir", tmp_path / "run")
    said = refused(tmp_path / "run" / "checkpoint_last.pt")
    assert said.endswith("CTranslate2 cannot represent the model: it was trained with --cross-self-attention")
    assert not (tmp_path / "ct2").exists()


def test_unsupported_options():
    """CTranslate2 would convert the last one into a model with other outputs."""
    flags = build_arch("reservoir_transformer_tiny", [], 20, 20).flags
    assert flag_not_in_ctranslate2(flags) is None
    for option, value in (
        ("no_cross_attention", True),
        ("adaptive_softmax_cutoff", "6"),
        ("decoder_output_dim", 8),
        ("quant_noise_pq", 0.1),
    ):
        assert option in flags
        changed = Namespace(**vars(flags) | {option: value})
        assert flag_not_in_ctranslate2(changed) == f"--{option.replace('_', '-')}"


def test_links_and_the_current_folder(with_text, tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "real")
    for folder, what in ((tmp_path / "link", "a link"), (".", "the current folder")):
        with pytest.raises(InputError, match=f"--ctranslate2 {folder}: is {what}; name another folder"):
            ctranslate2_folder.convert(str(with_text), str(folder), force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]
